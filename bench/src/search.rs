//! The highest rate at which nothing is lost, by bisection.

use crate::case::Plan;
use crate::contender::Contender;
use crate::load::Sizes;
use crate::stage::{Purpose, Stage, Trial};
use anyhow::Context;
use serde::Serialize;
use std::time::Duration;

/// A failed attempt is repeated once if others used more than this share of the processors meanwhile.
const DISTURBED_SHARE: f64 = 0.04;

/// Rates beyond these, in datagrams a second, are not looked for.
const RATE_MIN: f64 = 100.0;
const RATE_MAX: f64 = 1e7;

/// What one search found, in datagrams a second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Found {
    /// What comes out when far more is offered.
    pub(crate) saturation_per_sec: f64,
    /// The highest rate at which nothing was lost.
    pub(crate) rate_per_sec: f64,
    /// The generator could not offer more: the relay may well be able to.
    pub(crate) is_limited_by_load: bool,
    pub(crate) saturation_cpu_ns_per_copy: f64,
}

/// Whether a relay kept up: everything arrived, and it was not merely queued. Queued is what arrives later than 2 % of
/// the run's duration (and 3 ms for one delay by the host) after the last datagram was sent; the relay's receive buffer
/// alone could hide an offer that is far too high for a run of a second.
pub(crate) fn keeps_up(trial: &Trial, duration: Duration) -> bool {
    let queued_ms = duration.as_secs_f64() * 1e3 * 0.02 + 3.0;
    trial.outcome.is_complete() && trial.outcome.drain_ms <= queued_ms
}

fn is_limited_by_load(trial: &Trial) -> bool {
    let outcome = &trial.outcome;
    outcome.sent_per_sec < outcome.offered_per_sec * 0.98
        || outcome.sinks.iter().any(|sink| sink.own_drops > 0)
}

/// The range that is left, in datagrams a second.
struct Range {
    low: f64,
    high: f64,
    /// Whether an attempt has set the upper end; else it is a guess.
    is_high_tried: bool,
    found: Found,
}

/// Searches for all relays of a stage at once, taking turns with every attempt, so that what disturbs the machine for a
/// while disturbs all of them.
///
/// `earlier` is what the last search found, for a better first guess.
pub(crate) fn highest_rates(
    stage: &mut Stage,
    plan: &Plan,
    earlier: Option<&[Found]>,
) -> anyhow::Result<Vec<Found>> {
    let mut ranges = Vec::new();
    for relay in 0..stage.relays.len() {
        let first_offer = match earlier {
            // Enough to saturate it; what is too much must be waited for.
            Some(earlier) => earlier[relay].saturation_per_sec * 1.35,
            None => first_offer(stage, relay),
        };
        ranges.push(first_range(stage, relay, plan, first_offer)?);
    }
    for _ in 0..plan.steps {
        for (relay, range) in ranges.iter_mut().enumerate() {
            let rate = (range.low * range.high).sqrt();
            attempt(stage, relay, plan, range, rate)?;
        }
    }
    for (relay, range) in ranges.iter_mut().enumerate() {
        leave_range(stage, relay, plan, range)?;
    }
    Ok(ranges.into_iter().map(|range| range.found).collect())
}

/// When every attempt failed, or none did, the range was wrong: goes down until one succeeds, or up until one fails.
fn leave_range(
    stage: &mut Stage,
    relay: usize,
    plan: &Plan,
    range: &mut Range,
) -> anyhow::Result<()> {
    let mut rate = range.low;
    while range.found.rate_per_sec == 0.0 && rate > RATE_MIN {
        attempt(stage, relay, plan, range, rate)?;
        rate *= 0.85;
    }
    let mut rate = range.high;
    while !range.is_high_tried && !range.found.is_limited_by_load && rate < RATE_MAX {
        attempt(stage, relay, plan, range, rate)?;
        rate *= 1.12;
    }
    Ok(())
}

/// A guess at what would saturate a relay: a copy costs as much as some thousand bytes.
fn first_offer(stage: &Stage, relay: usize) -> f64 {
    let bytes = stage.case.sizes.mean_bytes() as f64;
    let sends_runs = matches!(stage.case.sizes, Sizes::Equal(_));
    let copies_per_sec = match stage.relays[relay].contender {
        Contender::Socat => 1e5,
        Contender::LimitRelay => 7e5,
        _ if sends_runs => 1.6e6,
        _ => 7e5,
    };
    copies_per_sec * 4_000.0 / (bytes + 4_000.0) / stage.case.targets as f64
}

/// Offers more and more until less comes out than goes in: what comes out then is near the highest rate.
fn first_range(
    stage: &mut Stage,
    relay: usize,
    plan: &Plan,
    mut offered: f64,
) -> anyhow::Result<Range> {
    let mut found = Found::default();
    loop {
        let trial = stage.offer(relay, Purpose::Saturation, offered, plan.saturation)?;
        found.saturation_per_sec = trial.outcome.delivered_per_sec;
        found.saturation_cpu_ns_per_copy = trial.cpu_ns_per_copy();
        if found.saturation_per_sec < 0.8 * offered || is_limited_by_load(trial) {
            break;
        }
        offered *= 1.6;
    }
    let estimate = found.saturation_per_sec;
    Ok(Range { low: estimate * 0.82, high: estimate * 1.12, is_high_tried: false, found })
}

fn attempt(
    stage: &mut Stage,
    relay: usize,
    plan: &Plan,
    range: &mut Range,
    rate: f64,
) -> anyhow::Result<()> {
    let trial = try_twice(stage, relay, Purpose::Rate, rate, plan.attempt)?;
    if keeps_up(trial, plan.attempt) {
        // What was sent counts, not what was asked for.
        range.found.rate_per_sec = trial.outcome.sent_per_sec.min(rate);
        range.found.is_limited_by_load = is_limited_by_load(trial);
        range.low = rate;
    } else {
        (range.high, range.is_high_tried) = (rate, true);
    }
    Ok(())
}

/// Offers a rate; once more if the relay did not keep up while others used the processors.
fn try_twice(
    stage: &mut Stage,
    relay: usize,
    purpose: Purpose,
    rate: f64,
    duration: Duration,
) -> anyhow::Result<&Trial> {
    let first = stage.offer(relay, purpose, rate, duration)?;
    let is_disturbed = first.foreign_share + first.stolen_share >= DISTURBED_SHARE;
    if !keeps_up(first, duration) && is_disturbed {
        stage.offer(relay, purpose, rate, duration)?;
    }
    stage.trials.last().context("a trial was just made")
}

/// How a relay stood a rate that was not searched for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) rate_per_sec: f64,
    pub(crate) keeps_up: bool,
    /// Copies that a receiver did not get, all receivers together.
    pub(crate) lost: u64,
}

/// Offers a rate to a relay and says whether it kept up.
pub(crate) fn hold(
    stage: &mut Stage,
    relay: usize,
    rate: f64,
    plan: &Plan,
) -> anyhow::Result<Held> {
    let trial = try_twice(stage, relay, Purpose::Hold, rate, plan.attempt)?;
    let wanted = trial.outcome.sent * trial.outcome.sinks.len() as u64;
    Ok(Held {
        rate_per_sec: rate,
        keeps_up: keeps_up(trial, plan.attempt),
        lost: wanted.saturating_sub(trial.outcome.copies()),
    })
}
