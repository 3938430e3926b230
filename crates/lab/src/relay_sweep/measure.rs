//! One rate, measured.

use super::{Combination, Error, Quantiles, Relay, Sample};
use load::generate::{self, Limit, Rate, Sizes};
use load::verify::{self, Done, Until, Verifier};
use load::{LatencyReport, Payload};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Silence after which nothing is on the way any more, although something is missing.
const IDLE: Duration = Duration::from_millis(300);
/// Silence after which the last heartbeats count as lost too.
const SILENCE: Duration = Duration::from_secs(1);
/// Bound on what the receivers wait after the sender has ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sequence numbers followed of each stream: 8 KiB of memory, and more than a relay reorders.
const WINDOW: usize = 65_536;

pub(super) fn one(
    combination: Combination,
    offered_per_sec: u64,
    duration: Duration,
    relay: &mut dyn Relay,
    stop: &AtomicBool,
) -> Result<Sample, Error> {
    let until = Until {
        duration: Some(duration + PATIENCE),
        done: Some(Done { idle: IDLE, silence: SILENCE, ..Done::default() }),
        ..Until::default()
    };
    let verifier = Verifier::bind(verify::Options {
        until,
        streams_max: combination.flows,
        window: WINDOW,
        ..verify::Options::on(relay.receivers(combination.targets))
    })?;
    let to = relay.start(&verifier.addresses()).map_err(Error::Relay)?;
    let options = generate::Options {
        rate: Rate::DatagramsPerSec(offered_per_sec),
        limit: Limit { count: None, duration: Some(duration) },
        sizes: Sizes::Fixed(combination.size_bytes.max(Payload::Binary.size_min_bytes())),
        flows: combination.flows,
        ..generate::Options::to(vec![to])
    };
    let ended = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        let receiving = thread::Builder::new()
            .name("lab-receivers".into())
            .spawn_scoped(scope, || verifier.run(&ended))
            .map_err(Error::Thread)?;
        let sent = generate::run(&options, stop, &generate::Progress::default());
        // Without a sender, or when told to stop, nobody waits for what is missing.
        ended.store(sent.is_err() || stop.load(Ordering::Relaxed), Ordering::Relaxed);
        let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, Error>((sent?, received))
    });
    let ledger = relay.stop().map_err(Error::Relay);
    let (sent, received) = measured?;
    let mut sample = sample(combination, offered_per_sec, &sent, &received);
    sample.ledger = ledger?;
    Ok(sample)
}

fn sample(
    combination: Combination,
    offered_per_sec: u64,
    sent: &generate::Report,
    received: &verify::Report,
) -> Sample {
    // Not what the receivers expect: where the end of a stream is lost at all of them, they expect too little.
    let expected = sent.sent_datagrams * combination.targets as u64;
    let missing = expected.saturating_sub(received.total.received);
    Sample {
        offered_per_sec,
        sent_per_sec: sent.datagrams_per_sec,
        sent: sent.sent_datagrams,
        expected,
        received: received.total.received,
        missing,
        missing_share: if expected == 0 { 0.0 } else { missing as f64 / expected as f64 },
        dropped_at_receivers: received.kernel_dropped,
        duplicates: received.total.duplicate,
        latency: slowest(received.listeners.iter().map(|listener| &listener.latency)),
        ledger: None,
    }
}

/// At each quantile the target that was slowest.
fn slowest<'a>(reports: impl Iterator<Item = &'a LatencyReport>) -> Option<Quantiles> {
    let of = |report: &LatencyReport| Quantiles {
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
