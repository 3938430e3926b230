//! Writes the tables of `--stages` as text.

use super::{Costs, Extrapolated, Known, Shape, Stages};
use text::grouped;

pub(super) fn render(stages: &Stages) -> String {
    let mut out = String::new();
    let machine = &stages.about.machine;
    line(
        &mut out,
        &format!(
            "What a datagram of {} bytes costs on {} ({}), in nanoseconds of a processor\n",
            stages.size_bytes, machine.processor, machine.kernel
        ),
    );
    costs(&mut out, &stages.costs);

    line(
        &mut out,
        "\nThe model on this machine, with more offered than passes, in datagrams per second\n",
    );
    let head = format!(
        "{:<38} {:>10} {:>5} {:>11} {:>11} {:>7}   {}",
        "relay", "processors", "left", "predicted", "measured", "error", "lowest to highest"
    );
    line(&mut out, &head);
    for known in &stages.known {
        line(&mut out, &row_of_known(known));
    }
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
    line(
        &mut out,
        &format!(
            "{:>10} {:>7} {:>12}   {:<26} {}",
            "processors", "targets", "per second", "run as", "what has no more time"
        ),
    );
    for predicted in &stages.predicted {
        line(&mut out, &row_of_predicted(predicted));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end_matches(' '));
    out.push('\n');
}

fn costs(out: &mut String, costs: &Costs) {
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
        line(out, &format!("{what:<38} {ns:>10.0}"));
    }
}

fn row_of_known(known: &Known) -> String {
    let (lowest, highest) = known.measured_range;
    format!(
        "{:<38} {:>10} {:>5.2} {:>11} {:>11} {:>6.0}%   {} to {}",
        named(known.shape),
        format!("{}{}", known.processors, if known.shares_with_load { "*" } else { "" }),
        known.processors_left,
        grouped(known.predicted_per_sec as u64),
        grouped(known.measured_per_sec as u64),
        known.error() * 100.0,
        grouped(lowest as u64),
        grouped(highest as u64),
    )
}

fn row_of_predicted(one: &Extrapolated) -> String {
    let setup = one.relay.setup;
    format!(
        "{:>10} {:>7} {:>12} {:>12}   {:<22} {}",
        setup.processors,
        setup.shape.targets,
        grouped(one.relay.rate_per_sec as u64),
        grouped(one.behind_one_queue.rate_per_sec as u64),
        way(setup.shape),
        one.relay.limit
    )
}

fn named(shape: Shape) -> String {
    format!("{}, targets: {}", way(shape), shape.targets)
}

fn way(shape: Shape) -> String {
    let Shape { sockets, schedule, .. } = shape;
    format!("sockets: {sockets}, {}", schedule.name())
}
