//! Searches for the highest rate without loss, for all relays of a stage in turn.

use crate::case::Plan;
use crate::contender::Contender;
use crate::stage::{Purpose, Stage, Trial};
use anyhow::Context;
use load::search::{Rates, Search, Verdict};
use load::spin::Sizes;
use serde::Serialize;
use std::time::Duration;

/// A failed attempt is repeated once if others used more than this share of the processors during it.
const DISTURBED_SHARE: f64 = 0.04;

/// The result of one search, in datagrams per second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Found {
    /// The rate that comes out when far more is offered.
    pub(crate) saturation_per_sec: f64,
    /// The highest rate without loss.
    pub(crate) rate_per_sec: f64,
    /// The generator could not offer more, and the relay may be able to forward more.
    pub(crate) is_limited_by_load: bool,
    pub(crate) saturation_cpu_ns_per_copy: f64,
}

/// Whether a relay kept up: everything arrived, and not from a queue. A datagram was queued if it arrives later than 2 % of the
/// run's duration (plus 3 ms for one delay by the host) after the last datagram was sent. In a run of a second, the relay's
/// receive buffer alone could hide a rate that is far too high.
pub(crate) fn keeps_up(trial: &Trial, duration: Duration) -> bool {
    let queued_ms = duration.as_secs_f64() * 1e3 * 0.02 + 3.0;
    trial.outcome.is_complete() && trial.outcome.drain_ms <= queued_ms
}

fn is_limited_by_load(trial: &Trial) -> bool {
    let outcome = &trial.outcome;
    outcome.sent_per_sec < outcome.offered_per_sec * 0.98
        || outcome.receivers.iter().any(|sink| sink.own_drops > 0)
}

/// Searches for all relays of a stage at once, alternating between them with every attempt, so that a temporary disturbance of
/// the machine affects all of them.
///
/// `earlier` is the result of the last search, for a better first guess.
pub(crate) fn highest_rates(
    stage: &mut Stage,
    plan: &Plan,
    earlier: Option<&[Found]>,
) -> anyhow::Result<Vec<Found>> {
    let mut searches = Vec::new();
    for relay in 0..stage.relays.len() {
        let first_offer = match earlier {
            // Enough to saturate it, but no more, since the excess must be waited for.
            Some(earlier) => earlier[relay].saturation_per_sec * 1.35,
            None => first_offer(stage, relay),
        };
        let found = saturate(stage, relay, plan, first_offer)?;
        let around = |share: f64| (found.saturation_per_sec * share) as u64;
        let rates = Rates::Around { low: around(0.82), high: around(1.12), steps: plan.steps };
        searches.push((Search::new(rates), found));
    }

    loop {
        let mut is_over = true;
        for (relay, (search, found)) in searches.iter_mut().enumerate() {
            let Some(rate) = search.next_rate() else { continue };
            search.learn(rate, attempt(stage, relay, plan, found, rate as f64)?);
            is_over = false;
        }
        if is_over {
            return Ok(searches.into_iter().map(|(_, found)| found).collect());
        }
    }
}

/// A guess at a rate that saturates a relay: a copy costs as much as some thousand bytes.
fn first_offer(stage: &Stage, relay: usize) -> f64 {
    let bytes = stage.case.sizes.mean_bytes() as f64;
    let sends_runs = matches!(stage.case.sizes, Sizes::Equal(_));
    let copies_per_sec = match stage.relays[relay].contender {
        Contender::Socat => 1e5,
        Contender::LimitRelay | Contender::RawRelay => 7e5,
        Contender::WEIR_TOGETHER | Contender::LimitRelayTogether => 3e6,
        _ if sends_runs => 1.6e6,
        _ => 7e5,
    };
    copies_per_sec * 4_000.0 / (bytes + 4_000.0) / stage.case.targets as f64
}

/// Raises the rate until less comes out than goes in: the output rate is then near the highest rate.
fn saturate(
    stage: &mut Stage,
    relay: usize,
    plan: &Plan,
    mut offered: f64,
) -> anyhow::Result<Found> {
    loop {
        let trial = stage.offer(relay, Purpose::Saturation, offered, plan.saturation)?;
        let found = Found {
            saturation_per_sec: trial.outcome.delivered_per_sec,
            saturation_cpu_ns_per_copy: trial.cpu_ns_per_copy(),
            ..Found::default()
        };

        if found.saturation_per_sec < 0.8 * offered || is_limited_by_load(trial) {
            return Ok(found);
        }
        offered *= 1.6;
    }
}

/// Tries a rate, and records the rate sent if everything got through.
fn attempt(
    stage: &mut Stage,
    relay: usize,
    plan: &Plan,
    found: &mut Found,
    rate: f64,
) -> anyhow::Result<Verdict> {
    let trial = try_twice(stage, relay, Purpose::Rate, rate, plan.attempt)?;
    if !keeps_up(trial, plan.attempt) {
        return Ok(Verdict::Lossy);
    }

    // The rate that was sent counts, not the one asked for.
    let sent_per_sec = trial.outcome.sent_per_sec.min(rate);
    let is_limited_by_load = is_limited_by_load(trial);
    if sent_per_sec > found.rate_per_sec {
        *found = Found { rate_per_sec: sent_per_sec, is_limited_by_load, ..*found };
    }
    Ok(if is_limited_by_load { Verdict::NotReached } else { Verdict::Lossless })
}

/// Tries a rate; tries again if the relay did not keep up while others used the processors.
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

/// The result of a relay at a given rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) rate_per_sec: f64,
    pub(crate) keeps_up: bool,
    /// Copies that receivers did not get, summed over all receivers.
    pub(crate) lost: u64,
}

/// Offers a rate to a relay and returns whether it kept up.
pub(crate) fn hold(
    stage: &mut Stage,
    relay: usize,
    rate: f64,
    plan: &Plan,
) -> anyhow::Result<Held> {
    let trial = try_twice(stage, relay, Purpose::Hold, rate, plan.attempt)?;
    Ok(Held {
        rate_per_sec: rate,
        keeps_up: keeps_up(trial, plan.attempt),
        lost: trial.outcome.lost(),
    })
}
