//! Measures one case: rates, CPU, latencies and memory, for all relays in turn.

use crate::case::{Case, Plan, Question, STEADY_RATE_PER_SEC};
use crate::contender::{C_LOOPS, Contender, Programs};
use crate::host::Placement;
use crate::measured::{CaseResult, Cpu, Latency, Measured};
use crate::search::{Found, highest_rates, hold};
use crate::stage::{Purpose, Stage, Trial};
use load::Latencies;
use std::time::Duration;

/// Share of the highest rate at which CPU times are compared.
const CPU_RATE_SHARE: f64 = 0.6;

/// Share of the highest rate at which latencies are compared.
const LATENCY_RATE_SHARE: f64 = 0.5;

/// Share of the rate that a relay sustains without a dead end at which it must lose nothing with one.
const HOLD_RATE_SHARE: f64 = 0.9;

/// Measures a case. `progress` is called after every repetition.
pub(crate) fn measure(
    case: Case,
    plan: Plan,
    contenders: &[Contender],
    programs: &Programs,
    placement: &Placement,
    mut progress: impl FnMut(&[Measured]) -> anyhow::Result<()>,
) -> anyhow::Result<CaseResult> {
    let mut stage = Stage::set_up(case, contenders, programs, placement)?;
    let mut measured: Vec<_> =
        contenders.iter().map(|contender| Measured::nothing_yet(*contender)).collect();

    for relay in 0..contenders.len() {
        stage.offer(relay, Purpose::Warmup, 2_000.0, Duration::from_millis(100))?;
    }

    let mut earlier: Option<Vec<Found>> = None;
    for _ in 0..plan.repetitions {
        match case.question {
            Question::Compare => {
                let found = highest_rates(&mut stage, &plan, earlier.as_deref())?;
                compare(&mut stage, &plan, &found, &mut measured)?;
                earlier = Some(found);
            }
            Question::Isolation(_) => {
                let found = highest_rates(&mut stage, &plan, earlier.as_deref())?;
                isolation(&mut stage, &plan, &found, &mut measured)?;
                earlier = Some(found);
            }
            Question::Steady => steady(&mut stage, &plan, &mut measured)?,
        }
        progress(&measured)?;
    }

    for (relay, one) in stage.relays.iter().zip(&mut measured) {
        let resident = relay.resident()?;
        (one.resident_kib, one.resident_peak_kib) = (resident.now_kib, resident.peak_kib);
    }
    Ok(CaseResult::new(case, plan, measured, stage.trials))
}

/// Measures CPU and latencies, at rates that Weir and the better C loop both sustain.
fn compare(
    stage: &mut Stage,
    plan: &Plan,
    found: &[Found],
    measured: &mut [Measured],
) -> anyhow::Result<()> {
    let common = common_rate(measured, found);
    for (relay, one) in measured.iter_mut().enumerate() {
        let rate = common.min(found[relay].rate_per_sec) * CPU_RATE_SHARE;
        let trial = stage.offer(relay, Purpose::Cpu, rate, plan.cpu)?;
        one.found.push(found[relay]);
        one.cpu.push(Cpu { rate_per_sec: rate, ns_per_copy: trial.cpu_ns_per_copy() });
    }

    for (relay, one) in measured.iter_mut().enumerate() {
        let rate = common.min(found[relay].rate_per_sec) * LATENCY_RATE_SHARE;
        one.latency.push(latency(stage, relay, rate, plan.latency)?.0);
    }
    Ok(())
}

/// The lower of the highest rates of Weir and the better C loop. Slower relays are measured at a share of their own rate.
fn common_rate(measured: &[Measured], found: &[Found]) -> f64 {
    let rates =
        || measured.iter().zip(found).map(|(one, found)| (one.contender, found.rate_per_sec));
    let weir = rates().find(|(contender, _)| *contender == Contender::WEIR_INLINE);
    let c_loops = rates().filter(|(contender, _)| C_LOOPS.contains(contender));
    let better = c_loops.map(|(_, rate)| rate).reduce(f64::max);
    let either = weir.map(|(_, rate)| rate).into_iter().chain(better);
    either.fold(f64::INFINITY, f64::min)
}

/// Measures whether the live targets lose anything at nine tenths of the rate that they take without the dead end.
fn isolation(
    stage: &mut Stage,
    plan: &Plan,
    found: &[Found],
    measured: &mut [Measured],
) -> anyhow::Result<()> {
    // The first relay is the one without a dead end.
    let rate = found[0].rate_per_sec * HOLD_RATE_SHARE;
    for (relay, one) in measured.iter_mut().enumerate() {
        one.found.push(found[relay]);
        one.held.push(hold(stage, relay, rate, plan)?);
    }
    Ok(())
}

/// CPU and latency for the same datagrams.
fn steady(stage: &mut Stage, plan: &Plan, measured: &mut [Measured]) -> anyhow::Result<()> {
    for (relay, one) in measured.iter_mut().enumerate() {
        let (latency, cpu) = latency(stage, relay, STEADY_RATE_PER_SEC, plan.latency)?;
        one.latency.push(latency);
        one.cpu.push(cpu);
    }
    Ok(())
}

/// Latencies of evenly spaced datagrams through a relay and, immediately afterwards, directly to the receiver; and the relay's
/// CPU cost of the former.
fn latency(
    stage: &mut Stage,
    relay: usize,
    rate: f64,
    duration: Duration,
) -> anyhow::Result<(Latency, Cpu)> {
    let trial = stage.time(Some(relay), rate, duration)?;
    let cpu = Cpu { rate_per_sec: rate, ns_per_copy: trial.cpu_ns_per_copy() };
    let sent_per_sec = trial.outcome.sent_per_sec;
    let through = percentiles_us(trial);

    let direct = percentiles_us(stage.time(None, rate, duration)?);

    let latency = Latency {
        rate_per_sec: rate,
        sent_per_sec,
        p50_us: through.0,
        p99_us: through.1,
        direct_p50_us: direct.0,
        direct_p99_us: direct.1,
    };
    Ok((latency, cpu))
}

/// The 50th and 99th percentiles of all receivers' latencies together. Removes the latencies from the trial.
fn percentiles_us(trial: &mut Trial) -> (f64, f64) {
    let mut all = Latencies::new();
    for tally in &mut trial.outcome.receivers {
        all.add(&tally.latencies.take().unwrap_or_else(Latencies::new));
    }

    let report = all.report();
    let us = |ns: u64| if report.samples == 0 { f64::NAN } else { ns as f64 / 1e3 };
    (us(report.p50_ns), us(report.p99_ns))
}
