//! What the experiments print, from results that nobody measured, as text in the repository for terminals of three widths:
//! `make generated` writes it again.

use crate::report::synthetic;
use lab::experiment::model::Schedule;
use lab::relay_sweep::{Combination, Curve, Quantiles, Sample, Sweep};
use lab::report::{RelayReport, Report, SflowReport};
use lab::sflow::{Accuracy, Check, Detection, Estimator, Experiment, Path, Plan, Point, Rule};
use lab::stages::{Costs, Known, Shape, Stages};
use lab::statistics::Bootstrap;
use lab::{About, Machine};
use load::join::{Lost, RelayLedger};
use load::search::Knee;
use std::time::Duration;
use testkit::screens;
use text::Ink;

const BUSY: &str = "The host was busy at 0 %, 5 % and 20 % loss: one wake-up in a hundred came 6 to 12 ms late or later, and so did messages, whatever carried them.";

/// As the program prints it: tables are made for the terminal, sentences are folded.
fn check(name: &str, tables: impl Fn(Option<usize>, Ink) -> String) {
    screens("crates/lab/tests/lab/screens", name, |columns| {
        let columns = usize::from(columns);
        text::folded(&tables(Some(columns), Ink::Plain), columns)
    });
}

#[test]
fn generated_udp_vs_tcp() {
    let mut experiment =
        synthetic::experiment(&["udp", "tcp-cubic"], &[Schedule::ClosedLoop], 5, 20.0);
    experiment.points.retain(|point| [0.0, 0.05, 0.2].contains(&point.configured_loss));
    experiment.about.notes.push(BUSY.to_owned());
    let report = Report::new(&experiment, Bootstrap { resamples: 100, seed: 1 });
    check("udp-vs-tcp", |columns, ink| report.terminal(columns, ink));
}

#[test]
fn generated_relay() {
    let sample = |offered_per_sec: u64, missing: u64| Sample {
        offered_per_sec,
        sent_per_sec: offered_per_sec as f64,
        expected: 3 * offered_per_sec,
        missing,
        missing_share: missing as f64 / (3 * offered_per_sec) as f64,
        latency: Some(Quantiles {
            p50_ns: 20_000,
            p99_ns: 912_000,
            p99_9_ns: 12_345_000,
            max_ns: 123_456_000,
        }),
        ledger: Some(RelayLedger {
            balanced: true,
            lost: match missing {
                0 => Vec::new(),
                copies => vec![
                    Lost { at: "socket: socket_buffer".to_owned(), copies },
                    Lost { at: "target: queue_full".to_owned(), copies: 7 },
                ],
            },
            ..RelayLedger::default()
        }),
        ..Sample::default()
    };
    let curve = |size_bytes, knee| Curve {
        combination: Combination { size_bytes, targets: 4, flows: 16 },
        knee,
        samples: vec![sample(400_000, 0), sample(800_000, 123_456)],
    };
    let knee = Knee::Between { lossless_per_sec: 400_000, lossy_per_sec: 800_000 };
    let curves =
        vec![curve(64, knee), curve(1_400, Knee::SenderLimit { lossless_per_sec: 400_000 })];
    let about = About { notes: vec![BUSY.to_owned()], ..About::default() };
    let sweep = Sweep { about, duration_s: 3.0, tolerance: 0.001, curves, ..Sweep::default() };
    let report = RelayReport::new(&sweep);
    check("relay", |columns, ink| report.terminal(columns, ink));
}

#[test]
fn generated_stages() {
    let costs = Costs {
        receive_ns: 812.0,
        member_ns: 830.0,
        merge_ns: 95.0,
        hand_over_ns: 40.0,
        send_ns: 951.0,
        worker_send_ns: 1_012.0,
        wake_up_ns: 4_321.0,
        deliver_ns: 1_540.0,
        load_send_ns: 1_310.0,
        load_take_ns: 705.0,
    };
    let known = |sockets, schedule, targets| Known {
        shape: Shape { sockets, schedule, targets },
        processors: 2,
        shares_with_load: targets > 1,
        processors_left: 1.87,
        predicted_per_sec: 312_345.0,
        measured_per_sec: 301_234.0,
        measured_range: (298_765.0, 305_432.0),
    };
    let known = vec![
        known(1, lab::stages::Schedule::Inline, 1),
        known(4, lab::stages::Schedule::Threaded, 4),
    ];
    let machine = Machine {
        processor: "a processor with a name of usual length".to_owned(),
        kernel: "Linux 6.18.5".to_owned(),
        ..Machine::default()
    };
    let about = About { notes: vec![BUSY.to_owned()], machine, ..About::default() };
    let plan =
        lab::stages::Plan { size_bytes: 200, duration: Duration::from_secs(1), repetitions: 3 };
    let stages = Stages::new(about, &plan, costs, known);
    check("stages", |columns, ink| stages.terminal(columns, ink));
}

#[test]
fn generated_flows() {
    let accuracy = |estimator, mean, covered| Accuracy {
        estimator,
        mean,
        error: 0.001,
        covered,
        figures: 6_000,
    };
    let point = |path, loss: f64| Point {
        path,
        loss,
        measured_loss: loss + 0.0012,
        runs: 2_000,
        accuracy: [
            accuracy(Estimator::Raw, 1.0 - loss, 12),
            accuracy(Estimator::AgentRate, 1.0 - loss, 15),
            accuracy(Estimator::Collector, 1.0012, 5_712),
        ],
        raw_beyond_loss: 0.0,
    };
    let detection = |loss, max_s| Detection {
        loss,
        attacks: 400,
        noticed: 400,
        false_alarms: 0,
        median_s: Some(0.234),
        p99_s: Some(0.987),
        max_s,
        times_s: Vec::new(),
    };
    let holds = |place: &str, holds| Check {
        rule: Rule::Coverage,
        place: place.to_owned(),
        measured: "95.2 % (95.1 to 95.3 %)".to_owned(),
        wanted: "93 to 97 %",
        holds,
    };
    let experiment = Experiment {
        about: About { notes: vec![BUSY.to_owned()], ..About::default() },
        plan: Plan::quick(),
        points: vec![point(Path::Simulated, 0.0), point(Path::SimulatedBursts, 0.5)],
        detections: vec![detection(0.0, Some(1.23)), detection(0.5, None)],
        checks: vec![
            holds("in memory, 0 % lost", true),
            holds("in memory, bursts, 50 % lost", false),
        ],
    };
    let report = SflowReport::new(&experiment);
    check("flows", |columns, ink| report.terminal(columns, ink));
}
