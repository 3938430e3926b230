//! Reasons to doubt an experiment, as notes: none if all is well.

use crate::experiment::model::{KernelCounters, Point, Settings};
use crate::statistics::Summary;
use std::collections::BTreeMap;
use text::{grouped, percent};

/// One sentence for each doubt that the figures raise.
pub(super) fn doubts(settings: &Settings, points: &[&Point], summaries: &[Summary]) -> Vec<String> {
    // The interval assumes independent losses.
    let is_independent = settings.loss_burst_packets.is_none();
    let outside_loss = is_independent.then(|| outside_loss(summaries)).flatten();
    [outside_loss, local_drops(points), ends_disagree(points), ended_early(points)]
        .into_iter()
        .flatten()
        .collect()
}

fn outside_loss(summaries: &[Summary]) -> Option<String> {
    let names: Vec<String> = summaries
        .iter()
        .filter_map(|summary| {
            let (configured, loss) = (summary.configured_loss, summary.measured_loss?);
            let is_inside =
                configured >= loss.interval.low - 1e-9 && configured <= loss.interval.high + 1e-9;
            (!is_inside).then(|| {
                format!(
                    "{} {} ({:.2} %)",
                    summary.transport,
                    percent(configured),
                    loss.share * 100.0
                )
            })
        })
        .collect();

    (!names.is_empty()).then(|| {
        format!(
            "Measured loss does not have the configured one in its 99.9 % interval: {}.",
            names.join(", ")
        )
    })
}

fn local_drops(points: &[&Point]) -> Option<String> {
    // The flows of one loss rate share their hosts, and so their counters.
    let kernel = |of: fn(&KernelCounters) -> u64| -> u64 {
        let mut by_loss: BTreeMap<u64, u64> = BTreeMap::new();
        for point in points {
            let counted = point.runs.iter().map(|run| of(&run.kernel)).max().unwrap_or(0);
            let most = by_loss.entry(point.configured_loss.to_bits()).or_default();
            *most = counted.max(*most);
        }
        by_loss.values().sum()
    };

    let failures = kernel(|counters| counters.retransmit_failures);
    let drops = kernel(|counters| counters.udp_receive_buffer_errors);
    (failures + drops > 0).then(|| {
        format!(
            "Not all loss is the path's: {} retransmissions failed on the sending host, and {} datagrams were dropped in the \
             receivers' buffers.",
            grouped(failures),
            grouped(drops)
        )
    })
}

fn ends_disagree(points: &[&Point]) -> Option<String> {
    let links = || points.iter().flat_map(|point| &point.runs).filter_map(|run| run.link);
    let disagreeing = links().filter(|link| !link.is_agreed()).count();
    (disagreeing > 0).then(|| {
        format!("The two ends of a link disagree in {disagreeing} of {} runs.", links().count())
    })
}

fn ended_early(points: &[&Point]) -> Option<String> {
    let runs = || points.iter().flat_map(|point| &point.runs);
    let mut failures: Vec<&str> =
        runs().map(|run| run.failure.as_str()).filter(|failure| !failure.is_empty()).collect();
    let failed = failures.len();

    failures.sort_unstable();
    failures.dedup();
    (failed > 0).then(|| {
        format!("{failed} of {} runs ended early: {}.", runs().count(), failures.join(", "))
    })
}
