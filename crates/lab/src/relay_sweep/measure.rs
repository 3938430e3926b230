//! One measurement at one rate.

use super::{Combination, Error, Quantiles, Relay, Sample};
use load::spin::{self, Offer, Outcome, Receiver, Sizes, Times};
use load::{Latencies, LatencyReport};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// After this time without datagrams, missing ones count as lost.
const QUIET: Duration = Duration::from_millis(300);
/// Precision of the schedule: datagrams that are due within this time leave together.
const BURST: Duration = Duration::from_micros(50);
/// Bytes that the receivers read of each datagram; for longer ones they only check that there is
/// more.
const READ_BYTES: usize = 2_048;

pub(super) fn one(
    combination: Combination,
    offered_per_sec: u64,
    duration: Duration,
    relay: &mut dyn Relay,
    stop: &AtomicBool,
) -> Result<Sample, Error> {
    let addresses = relay.receivers(combination.targets);
    let receivers: Result<Vec<Receiver>, _> =
        addresses.iter().map(|address| Receiver::open(address, READ_BYTES)).collect();
    let mut receivers = receivers?;
    let targets: Vec<_> = receivers.iter().map(|receiver| receiver.address().clone()).collect();

    let sizes = Sizes::Equal(combination.size_bytes);
    let due_together = (offered_per_sec as f64 * BURST.as_secs_f64()) as usize;
    let offer = Offer {
        to: relay.start(&targets).map_err(Error::Relay)?,
        flows: combination.flows,
        rate_per_sec: offered_per_sec as f64,
        duration,
        sizes,
        burst: due_together.clamp(1, sizes.burst()),
        quiet: QUIET,
        times: Times::Note,
    };
    let outcome = spin::run(&offer, fresh_run(), &mut receivers, stop);

    let ledger = relay.stop().map_err(Error::Relay);
    Ok(Sample { ledger: ledger?, ..sample(offered_per_sec, &outcome?) })
}

/// A different number in each measurement distinguishes late datagrams of an earlier one.
fn fresh_run() -> u32 {
    sys::clock::realtime_ns() as u32
}

fn sample(offered_per_sec: u64, outcome: &Outcome) -> Sample {
    let tallies = &outcome.receivers;
    let expected = outcome.sent * tallies.len() as u64;
    let missing = outcome.lost();

    Sample {
        offered_per_sec,
        sent_per_sec: outcome.sent_per_sec,
        sent: outcome.sent,
        expected,
        received: outcome.copies(),
        missing,
        missing_share: if expected == 0 { 0.0 } else { missing as f64 / expected as f64 },
        dropped_at_receivers: tallies.iter().map(|tally| u64::from(tally.own_drops)).sum(),
        duplicates: tallies.iter().map(|tally| tally.duplicates).sum(),
        latency: slowest(
            tallies.iter().filter_map(|tally| tally.latencies.as_ref()).map(Latencies::report),
        ),
        ledger: None,
    }
}

/// Each quantile of the slowest target.
fn slowest(reports: impl Iterator<Item = LatencyReport>) -> Option<Quantiles> {
    let of = |report: LatencyReport| Quantiles {
        p50_ns: report.p50_ns,
        p99_ns: report.p99_ns,
        p99_9_ns: report.p99_9_ns,
        max_ns: report.max_ns,
    };
    reports.filter(|report| report.samples > 0).map(of).reduce(|a, b| Quantiles {
        p50_ns: a.p50_ns.max(b.p50_ns),
        p99_ns: a.p99_ns.max(b.p99_ns),
        p99_9_ns: a.p99_9_ns.max(b.p99_9_ns),
        max_ns: a.max_ns.max(b.max_ns),
    })
}
