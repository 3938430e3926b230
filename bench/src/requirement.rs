//! What Weir must reach, each checked against what was measured.

use crate::contender::Contender;
use crate::load::Sizes;
use crate::measure::{CaseResult, Measured};
use crate::start::StartResult;
use serde::Serialize;

/// The schedule that `auto` chooses on the two processors for which the requirements are stated.
const WEIR: Contender = Contender::WeirInline;

const RATE_RATIO_MIN: f64 = 0.9;
const CPU_RATIO_MAX: f64 = 1.1;
const RESIDENT_MIB_MAX: f64 = 24.0;
const START_MS_MAX: f64 = 20.0;
const ADDED_P99_US_MAX: f64 = 500.0;

/// One requirement and how it stands.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Requirement {
    pub(crate) what: String,
    pub(crate) limit: String,
    pub(crate) measured: String,
    pub(crate) is_met: bool,
}

impl Requirement {
    fn at_least(what: String, min: f64, value: f64) -> Requirement {
        Requirement {
            what,
            limit: format!(">= {min}"),
            measured: format!("{value:.2}"),
            is_met: value >= min,
        }
    }

    fn at_most(what: String, max: f64, value: f64, unit: &str) -> Requirement {
        Requirement {
            what,
            limit: format!("<= {max}{unit}"),
            measured: format!("{value:.2}{unit}"),
            is_met: value <= max,
        }
    }
}

/// The relay of which Weir is measured as a share: it gathers runs where there are any.
pub(crate) fn yardstick(sizes: Sizes) -> Contender {
    match sizes {
        Sizes::Equal(_) => Contender::LimitRelayRuns,
        Sizes::Varying { .. } => Contender::LimitRelay,
    }
}

pub(crate) fn rate(of: &Measured, repetition: usize) -> f64 {
    of.found[repetition].rate_per_sec
}

pub(crate) fn cpu(of: &Measured, repetition: usize) -> f64 {
    of.cpu[repetition].ns_per_copy
}

/// Checks everything that the results say something about.
pub(crate) fn check(results: &[CaseResult], starts: &[StartResult]) -> Vec<Requirement> {
    let mut all = Vec::new();
    for result in results.iter().filter(|r| r.case.targets == 2 && r.case.sizes.mean_bytes() == 200)
    {
        let other = yardstick(result.case.sizes);
        let (Some(weir), Some(limit)) = (result.of(WEIR), result.of(other)) else { continue };
        let against = format!("{} / {}, {}", WEIR.label(), other.label(), result.case.label());
        let (rate, cpu) = (weir.ratio(limit, rate), weir.ratio(limit, cpu));
        all.push(Requirement::at_least(format!("highest rate: {against}"), RATE_RATIO_MIN, rate));
        all.push(Requirement::at_most(format!("CPU per copy: {against}"), CPU_RATIO_MAX, cpu, ""));
        let mut latency = Requirement::at_most(
            format!("p99 added latency at half of the highest rate, {}", result.case.label()),
            ADDED_P99_US_MAX,
            weir.added_p99_us(),
            " us",
        );
        // Where others want the relay's processor, this is the scheduler's latency: the yardstick has it too.
        let (label, yardstick) = (other.label(), limit.added_p99_us());
        latency.measured.push_str(&format!(" ({label}: {yardstick:.2} us)"));
        all.push(latency);
        all.push(Requirement::at_most(
            format!("peak resident memory, {}", result.case.label()),
            RESIDENT_MIB_MAX,
            weir.resident_peak_kib as f64 / 1_024.0,
            " MiB",
        ));
    }
    if let Some(start) = starts.iter().find(|start| start.contender == WEIR) {
        let what = "start of the process to the first datagram forwarded".to_owned();
        all.push(Requirement::at_most(what, START_MS_MAX, start.median_ms(), " ms"));
    }
    all
}
