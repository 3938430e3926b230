//! The report of `weir verify` for people.

use ::load::chart;
use ::load::join::Join;
use ::load::verify::{Counts, ListenerReport, Report, RunReport};
use std::fmt::Write;
use text::{bit_rate, grouped};

/// Gaps printed for each run; JSON has more.
const GAPS_SHOWN: usize = 8;

/// `joined` is empty, or has one for each listener.
pub(super) fn report(report: &Report, joined: &[Join]) -> String {
    let mut text = String::new();
    for (idx, listener) in report.listeners.iter().enumerate() {
        listener_text(&mut text, listener);
        if let Some(join) = joined.get(idx) {
            join_text(&mut text, join);
        }
        text.push('\n');
    }
    line(&mut text, &verdict(report));
    text
}

/// Writing to a string does not fail.
fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

fn listener_text(text: &mut String, listener: &ListenerReport) {
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

    text.push_str(&chart::rate_over_time(&listener.timeline));
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
