//! Writes the tables of `--stages` as text.

use super::{Costs, Extrapolated, Known, Shape, Stages};
use text::{Align, Ink, Table, grouped};

const KNOWN: [(&str, Align); 7] = [
    ("relay", Align::Left),
    ("processors", Align::Right),
    ("left", Align::Right),
    ("predicted", Align::Right),
    ("measured", Align::Right),
    ("error", Align::Right),
    ("lowest to highest", Align::Left),
];

const PREDICTED: [(&str, Align); 6] = [
    ("processors", Align::Right),
    ("targets", Align::Right),
    ("per second", Align::Right),
    ("behind one queue", Align::Right),
    ("run as", Align::Left),
    ("bottleneck", Align::Left),
];

pub(super) fn render(stages: &Stages, columns: Option<usize>, ink: Ink) -> String {
    let mut out = String::new();
    let machine = &stages.about.machine;
    line(
        &mut out,
        &format!(
            "What a datagram of {} bytes costs on {} ({}), in nanoseconds of a processor\n",
            stages.size_bytes, machine.processor, machine.kernel
        ),
    );
    out.push_str(&costs(&stages.costs).text(columns, ink));

    line(
        &mut out,
        "\nThe model on this machine, with more offered than passes, in datagrams per second\n",
    );
    let mut known = Table::new(KNOWN);
    stages.known.iter().for_each(|one| known.push(row_of_known(one)));
    out.push_str(&known.text(columns, ink));
    if stages.known.iter().any(|known| known.shares_with_load) {
        line(&mut out, "* the load shares them");
    }
    line(&mut out, "left: processors that other programs left, with which the prediction counts");

    line(
        &mut out,
        &format!(
            "\nExtrapolated: one flow without loss, at best. Costs are taken to stay as they are; on this machine the model was up to {:.0} % off\n",
            stages.error_max * 100.0
        ),
    );
    let mut predicted = Table::new(PREDICTED);
    stages.predicted.iter().for_each(|one| predicted.push(row_of_predicted(one)));
    out.push_str(&predicted.text(columns, ink));
    for note in &stages.about.notes {
        line(&mut out, &format!("\nNote: {note}"));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn costs(costs: &Costs) -> Table<'static> {
    let mut table = Table::of_figures(&["stage", "ns"]);
    for (what, ns) in [
        ("receive, admit, write into the ring", costs.receive_ns),
        ("the same by one of several sockets", costs.member_ns),
        ("merge several sockets in order", costs.merge_ns),
        ("wake those that send", costs.hand_over_ns),
        ("a copy, by the receiving thread", costs.send_ns),
        ("a copy, by a thread of its own", costs.worker_send_ns),
        ("more, where each comes alone", costs.wake_up_ns),
        ("from a sender's call to the socket", costs.deliver_ns),
        ("the lab's sender", costs.load_send_ns),
        ("the lab's receivers, for a copy", costs.load_take_ns),
    ] {
        table.push([what.to_owned(), format!("{ns:.0}")]);
    }
    table
}

fn row_of_known(known: &Known) -> [String; 7] {
    let (lowest, highest) = known.measured_range;
    [
        named(known.shape),
        format!("{}{}", known.processors, if known.shares_with_load { "*" } else { "" }),
        format!("{:.2}", known.processors_left),
        grouped(known.predicted_per_sec as u64),
        grouped(known.measured_per_sec as u64),
        format!("{:.0} %", known.error() * 100.0),
        format!("{} to {}", grouped(lowest as u64), grouped(highest as u64)),
    ]
}

fn row_of_predicted(one: &Extrapolated) -> [String; 6] {
    let setup = one.relay.setup;
    [
        setup.processors.to_string(),
        setup.shape.targets.to_string(),
        grouped(one.relay.rate_per_sec as u64),
        grouped(one.behind_one_queue.rate_per_sec as u64),
        way(setup.shape),
        one.relay.limit.to_owned(),
    ]
}

fn named(shape: Shape) -> String {
    format!("{}, targets: {}", way(shape), shape.targets)
}

fn way(shape: Shape) -> String {
    let Shape { sockets, schedule, .. } = shape;
    format!("sockets: {sockets}, {}", schedule.name())
}
