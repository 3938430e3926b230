//! One case, measured: rates, CPU, latencies, memory, for all relays in turn.

use crate::contender::{Contender, Programs};
use crate::host::Placement;
use crate::requirement::yardstick;
use crate::search::{Found, Plan, highest_rates};
use crate::stage::{Case, Purpose, Stage, Trial};
use serde::Serialize;
use std::time::Duration;

/// Share of the highest rate at which CPU time is compared.
const CPU_RATE_SHARE: f64 = 0.6;

/// Added latency in microseconds: through the relay, minus straight to the receiver.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Latency {
    pub(crate) rate_per_sec: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) direct_p50_us: f64,
    pub(crate) direct_p99_us: f64,
}

/// CPU time of a relay for each copy, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Cpu {
    pub(crate) rate_per_sec: f64,
    pub(crate) ns_per_copy: f64,
}

/// Everything about one relay in one case; one entry a repetition.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) contender: Contender,
    pub(crate) found: Vec<Found>,
    pub(crate) cpu: Vec<Cpu>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) resident_kib: u64,
    pub(crate) resident_peak_kib: u64,
}

impl Measured {
    pub(crate) fn rate_per_sec(&self) -> f64 {
        median(self.found.iter().map(|found| found.rate_per_sec))
    }

    pub(crate) fn cpu_ns_per_copy(&self) -> f64 {
        median(self.cpu.iter().map(|cpu| cpu.ns_per_copy))
    }

    pub(crate) fn saturation_cpu_ns_per_copy(&self) -> f64 {
        median(self.found.iter().map(|found| found.saturation_cpu_ns_per_copy))
    }

    pub(crate) fn added_p50_us(&self) -> f64 {
        median(self.latency.iter().map(|latency| latency.p50_us - latency.direct_p50_us))
    }

    pub(crate) fn added_p99_us(&self) -> f64 {
        median(self.latency.iter().map(|latency| latency.p99_us - latency.direct_p99_us))
    }

    pub(crate) fn is_limited_by_load(&self) -> bool {
        self.found.iter().any(|found| found.is_limited_by_load)
    }

    /// Median of what `of` says of this one over what it says of the other, repetition by repetition: the two were
    /// measured within seconds of each other.
    pub(crate) fn ratio(&self, other: &Measured, of: impl Fn(&Measured, usize) -> f64) -> f64 {
        let repetitions = self.found.len().min(other.found.len());
        median((0..repetitions).map(|n| of(self, n) / of(other, n)))
    }
}

/// A case with all its results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult {
    pub(crate) case: Case,
    pub(crate) plan: Plan,
    pub(crate) measured: Vec<Measured>,
    pub(crate) trials: Vec<Trial>,
}

impl CaseResult {
    pub(crate) fn of(&self, contender: Contender) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.contender == contender)
    }

    /// Share of the processors that others, or the host, took during the median run.
    pub(crate) fn disturbance(&self) -> f64 {
        median(self.trials.iter().map(|trial| trial.foreign_share + trial.stolen_share))
    }
}

/// Measures a case. `progress` is told after every repetition.
pub(crate) fn measure(
    case: Case,
    plan: Plan,
    contenders: &[Contender],
    programs: &Programs,
    placement: &Placement,
    mut progress: impl FnMut(usize, &[Measured]) -> anyhow::Result<()>,
) -> anyhow::Result<CaseResult> {
    let mut stage = Stage::set_up(case, contenders, programs, placement)?;
    let mut measured: Vec<_> = contenders.iter().map(|contender| blank(*contender)).collect();
    for relay in 0..contenders.len() {
        stage.offer(relay, Purpose::Warmup, 2_000.0, Duration::from_millis(100))?;
    }
    let mut earlier: Option<Vec<Found>> = None;
    for repetition in 0..plan.repetitions {
        let found = highest_rates(&mut stage, &plan, earlier.as_deref())?;
        let common = common_rate(case, contenders, &found);
        for (relay, one) in measured.iter_mut().enumerate() {
            let rate = found[relay].rate_per_sec;
            one.found.push(found[relay]);
            let cpu_rate = common.min(rate * CPU_RATE_SHARE);
            one.cpu.push(cpu(&mut stage, relay, cpu_rate, plan.cpu)?);
        }
        for (relay, one) in measured.iter_mut().enumerate() {
            let rate = found[relay].rate_per_sec / 2.0;
            one.latency.push(latency(&mut stage, relay, rate, plan.latency)?);
        }
        progress(repetition, &measured)?;
        earlier = Some(found);
    }
    for (relay, one) in stage.relays.iter().zip(&mut measured) {
        let resident = relay.resident()?;
        (one.resident_kib, one.resident_peak_kib) = (resident.now_kib, resident.peak_kib);
    }
    Ok(CaseResult { case, plan, measured, trials: stage.trials })
}

fn blank(contender: Contender) -> Measured {
    Measured {
        contender,
        found: Vec::new(),
        cpu: Vec::new(),
        latency: Vec::new(),
        resident_kib: 0,
        resident_peak_kib: 0,
    }
}

/// A rate that Weir and its yardstick both keep up with easily. Slower relays are measured at such a share of their own.
fn common_rate(case: Case, contenders: &[Contender], found: &[Found]) -> f64 {
    let compared = [Contender::WeirInline, yardstick(case.sizes)];
    let rates = contenders.iter().zip(found).filter(|(contender, _)| compared.contains(contender));
    let slowest = rates.map(|(_, found)| found.rate_per_sec).fold(f64::INFINITY, f64::min);
    slowest * CPU_RATE_SHARE
}

fn cpu(stage: &mut Stage, relay: usize, rate: f64, duration: Duration) -> anyhow::Result<Cpu> {
    let trial = stage.offer(relay, Purpose::Cpu, rate, duration)?;
    Ok(Cpu { rate_per_sec: rate, ns_per_copy: trial.cpu_ns_per_copy() })
}

fn latency(
    stage: &mut Stage,
    relay: usize,
    rate: f64,
    duration: Duration,
) -> anyhow::Result<Latency> {
    let through = percentiles_us(stage.time(Some(relay), rate, duration)?);
    let direct = percentiles_us(stage.time(None, rate, duration)?);
    Ok(Latency {
        rate_per_sec: rate,
        p50_us: through.0,
        p99_us: through.1,
        direct_p50_us: direct.0,
        direct_p99_us: direct.1,
    })
}

/// The 50th and the 99th percentile of all receivers' latencies together; takes them out of the trial.
fn percentiles_us(trial: &mut Trial) -> (f64, f64) {
    let mut all = Vec::new();
    for sink in &mut trial.outcome.sinks {
        all.append(&mut std::mem::take(&mut sink.latencies_ns));
    }
    all.sort_unstable();
    let at = |share: f64| {
        let index = (all.len() as f64 * share) as usize;
        all.get(index.min(all.len().saturating_sub(1))).map_or(f64::NAN, |ns| f64::from(*ns) / 1e3)
    };
    (at(0.5), at(0.99))
}

/// The middle value, or the mean of the two middle ones; NaN of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }
}
