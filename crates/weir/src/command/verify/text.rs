//! The report of `weir verify` for people.

use crate::screen::Room;
use ::load::chart;
use ::load::join::Join;
use ::load::verify::{Counts, ListenerReport, Report, RunReport};
use std::fmt::Write;
use text::{Tint, bit_rate, grouped};

/// Most gaps printed for each run; JSON has more.
const GAPS_SHOWN: usize = 8;

/// The whole report. `joined` is empty or has one entry per listener.
pub(super) fn report(report: &Report, joined: &[Join], room: Room) -> String {
    let mut text = String::new();
    for (idx, listener) in report.listeners.iter().enumerate() {
        listener_text(&mut text, listener, room);
        if let Some(join) = joined.get(idx) {
            join_text(&mut text, join);
        }
        text.push('\n');
    }
    line(&mut text, &verdict(report));
    room.folded(&text)
}

/// The tint of a report line.
pub(super) fn tint(line: &str) -> Tint {
    match line {
        _ if line.starts_with("clean") => Tint::Good,
        _ if line.starts_with("not clean") => Tint::Alarm,
        _ => Tint::Plain,
    }
}

/// Appends a line.
fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

fn listener_text(text: &mut String, listener: &ListenerReport, room: Room) {
    let counts = &listener.counts;
    line(
        text,
        &format!(
            "{}  received {} of {}, {} bytes in {:.2} s: {}/s, {}  (ended by {})",
            listener.listen,
            grouped(counts.received),
            grouped(counts.expected),
            grouped(counts.bytes),
            listener.elapsed_seconds,
            grouped(listener.datagrams_per_sec as u64),
            bit_rate(listener.bits_per_sec),
            listener.ended_by,
        ),
    );
    line(text, &faults_text(listener.missing, counts));
    if listener.kernel_dropped > 0 {
        line(
            text,
            &format!(
                "  our own socket dropped {} (receive buffer {} bytes): this receiver was too slow, or --receive-buffer too small",
                grouped(listener.kernel_dropped),
                grouped(listener.receive_buffer_bytes as u64),
            ),
        );
    }

    for run in &listener.runs {
        run_text(text, run);
    }
    let latency = &listener.latency;
    if latency.samples > 0 {
        let time = |ns: u64| ::text::time(ns as f64);
        line(
            text,
            &format!(
                "  latency p50 {}  p90 {}  p99 {}  p99.9 {}  p99.99 {}  max {}",
                time(latency.p50_ns),
                time(latency.p90_ns),
                time(latency.p99_ns),
                time(latency.p99_9_ns),
                time(latency.p99_99_ns),
                time(latency.max_ns),
            ),
        );
    }

    text.push_str(&chart::rate_over_time(&listener.timeline, room.columns));
    text.push_str(&chart::latency(latency));
}

fn faults_text(missing: u64, counts: &Counts) -> String {
    let mut text = format!(
        "  missing {}  duplicate {}  reordered {}",
        grouped(missing),
        grouped(counts.duplicate),
        grouped(counts.reordered),
    );
    if counts.reordered > 0 {
        // Writing to a string does not fail.
        let _ = write!(text, " (by up to {})", grouped(counts.reorder_extent_max));
    }
    let _ = write!(
        text,
        "  corrupt {}  truncated {}  late {}  foreign {}  heartbeats {}",
        grouped(counts.corrupt),
        grouped(counts.truncated),
        grouped(counts.late),
        grouped(counts.foreign),
        grouped(counts.heartbeats),
    );

    let rare = [
        ("beyond the window", counts.beyond_window),
        ("of untracked streams", counts.untracked),
        ("stamped in the future", counts.from_future),
    ];
    for (label, count) in rare.into_iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, "  {label} {}", grouped(count));
    }
    text
}

fn run_text(text: &mut String, run: &RunReport) {
    let unended = run.streams_seen.max(usize::from(run.streams_announced)) - run.streams_ended;
    let mut head = format!(
        "  run {}  streams {} of {}",
        run.run,
        run.streams_seen,
        match run.streams_announced {
            0 => "unknown".to_owned(),
            announced => announced.to_string(),
        },
    );
    if unended > 0 {
        let _ = write!(head, ", {unended} without an end: their last datagrams may be missing too");
    }

    line(text, &head);

    if run.senders.len() > 1 {
        for sender in &run.senders {
            line(
                text,
                &format!(
                    "    sender {}  received {} of {}  missing {}  duplicate {}  reordered {}",
                    sender.sender,
                    grouped(sender.received),
                    grouped(sender.expected),
                    grouped(sender.missing),
                    grouped(sender.duplicate),
                    grouped(sender.reordered),
                ),
            );
        }
    }

    for gap in run.gaps.iter().take(GAPS_SHOWN) {
        line(
            text,
            &format!(
                "    gap in sender {} flow {}: {} datagrams from number {}",
                gap.sender,
                gap.flow,
                grouped(gap.last - gap.first + 1),
                grouped(gap.first),
            ),
        );
    }

    let more = run.gaps_omitted + run.gaps.len().saturating_sub(GAPS_SHOWN) as u64;
    if more > 0 {
        line(text, &format!("    and {} more gaps", grouped(more)));
    }
}

fn join_text(text: &mut String, join: &Join) {
    let lost: u64 = join.losses.iter().map(|loss| loss.datagrams).sum();
    line(
        text,
        &format!(
            "  by the ledger, {} -> {}, heartbeats included: sent {}, arrived {}, lost {}",
            join.route.listener,
            join.route.target,
            grouped(join.sent),
            grouped(join.arrived),
            grouped(lost),
        ),
    );
    for loss in &join.losses {
        let why = match loss.reason {
            Some(reason) => format!("{}: {}", reason.label(), reason.cause()),
            None => "in no counter: lost between the hosts, or in a kernel queue".to_owned(),
        };
        line(text, &format!("    {:>12}  {}, {why}", grouped(loss.datagrams), loss.place));
    }

    for (label, count) in [
        ("still in the relay", join.in_flight),
        (
            "more than the runs above are known to have sent: other senders, duplicates, or the end of a run that did not arrive",
            join.surplus,
        ),
    ] {
        if count > 0 {
            line(text, &format!("    {:>12}  {label}", grouped(count)));
        }
    }
}

fn verdict(report: &Report) -> String {
    let counts = &report.total;
    if report.clean {
        return format!("clean: 0 lost of {}", grouped(counts.expected));
    }
    if let Some(silent) = report.listeners.iter().find(|l| l.counts.received == 0) {
        return format!("not clean: nothing arrived on {}", silent.listen);
    }

    let faults = [
        ("missing", report.missing),
        ("duplicate", counts.duplicate),
        ("corrupt", counts.corrupt),
        ("truncated", counts.truncated),
    ];

    let found: Vec<_> = faults
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(label, count)| format!("{label} {}", grouped(*count)))
        .collect();

    match found.as_slice() {
        [] => "not clean: the senders' end was not seen".to_owned(),
        found => format!("not clean: {} of {}", found.join(", "), grouped(counts.expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::ledger::Reason;
    use ::load::join::{Loss, Route};
    use ::load::verify::{Gap, SenderReport};
    use ::load::{Bucket, LatencyReport, Timeline};

    fn sender(sender: u16) -> SenderReport {
        let counts =
            SenderReport { sender, streams: 8, expected: 6_172_839, ..SenderReport::default() };
        SenderReport { received: 6_166_667, missing: 6_172, reordered: 12, ..counts }
    }

    fn one_run() -> RunReport {
        RunReport {
            run: "0123456789abcdef".to_owned(),
            streams_announced: 16,
            streams_seen: 16,
            streams_ended: 15,
            senders: vec![sender(0), sender(1)],
            gaps: vec![Gap { sender: 1, flow: 3, first: 1_234_567, last: 1_240_738 }],
            gaps_omitted: 4,
        }
    }

    fn listener() -> ListenerReport {
        let bucket = |up_to_ns, samples| Bucket { up_to_ns, samples };
        ListenerReport {
            listen: "udp://[2001:db8:1111:2222:3333:4444:5555:6666]:20514".to_owned(),
            clean: false,
            ended_by: "idle",
            counts: Counts {
                expected: 12_345_678,
                received: 12_333_333,
                bytes: 12_333_333 * 200,
                reordered: 24,
                reorder_extent_max: 17,
                heartbeats: 1_234,
                heartbeats_expected: 1_234,
                ..Counts::default()
            },
            missing: 12_345,
            kernel_dropped: 12_000,
            receive_errors: 0,
            receive_buffer_asked_bytes: 8 << 20,
            receive_buffer_bytes: 416 << 10,
            elapsed_seconds: 61.73,
            datagrams_per_sec: 200_000.0,
            bits_per_sec: 320_000_000.0,
            latency: LatencyReport {
                samples: 12_333_333,
                p50_ns: 45_600,
                p90_ns: 123_000,
                p99_ns: 912_000,
                p99_9_ns: 12_345_000,
                p99_99_ns: 45_678_000,
                max_ns: 123_456_000,
                distribution: vec![bucket(50_000, 9_000_000), bucket(1_000_000, 3_333_333)],
                ..LatencyReport::default()
            },
            thread_cpu_seconds: 12.0,
            timeline: Timeline {
                interval_ns: 500_000_000,
                datagrams: (0..124).map(|at| 90_000 + 1_000 * (at % 17)).collect(),
            },
            runs: vec![one_run()],
        }
    }

    #[test]
    fn generated_screens() {
        let listener = listener();
        let report = Report {
            clean: false,
            total: listener.counts.clone(),
            missing: 12_345,
            kernel_dropped: 12_000,
            listeners: vec![listener],
        };
        let loss = |place, reason, datagrams| Loss { place, reason, datagrams };
        let join = Join {
            route: Route {
                listener: "syslog".to_owned(),
                target: "udp://collector-17.eu-west.a-rather-long-domain.example.com:5514"
                    .to_owned(),
            },
            sent: 12_346_912,
            arrived: 12_334_567,
            losses: vec![
                loss("own socket", Some(Reason::SocketBuffer), 12_000),
                loss("behind the relay", None, 345),
            ],
            in_flight: 0,
            unexplained: 0,
            surplus: 3,
        };
        crate::screen::check("verify", |room| {
            super::report(&report, std::slice::from_ref(&join), room)
        });
    }
}
