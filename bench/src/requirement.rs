//! Weir's requirements, each checked against the measurements.

use crate::case::Question;
use crate::contender::{Contender, DeadEnd, Gathering, Weir};
use crate::estimate::Estimate;
use crate::measured::{CaseResult, Measured, Quantity};
use crate::site::Reach;
use crate::start::StartResult;
use serde::Serialize;

const WEIR: Contender = Contender::WEIR_INLINE;

/// Relative to the better C loop of each repetition.
const RATE_RATIO_MIN: f64 = 1.0;
const CPU_RATIO_MAX: f64 = 1.0;
/// In excess of the C loop of the same repetition.
const ADDED_P99_MORE_US_MAX: f64 = 0.0;
/// Relative to the rate without the target that takes nothing.
const ISOLATION_RATIO_MIN: f64 = 0.95;
/// Relative to the CPU time without gathering.
const GATHERING_CPU_RATIO_MAX: f64 = 0.5;
const GATHERING_MORE_US_MAX: f64 = 100.0;
const RESIDENT_MIB_MAX: f64 = 24.0;
const START_MS_MAX: f64 = 20.0;

/// One requirement, and its result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Requirement {
    pub(crate) what: String,
    pub(crate) limit: String,
    pub(crate) measured: String,
    pub(crate) is_met: bool,
    /// The limit is inside the interval of the median, so that another run may decide differently.
    pub(crate) is_close: bool,
}

/// A limit, and the side of it on which a value must be.
#[derive(Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    fn value(self) -> f64 {
        match self {
            Limit::AtLeast(limit) | Limit::AtMost(limit) => limit,
        }
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Limit::AtLeast(min) => value >= min,
            Limit::AtMost(max) => value <= max,
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Limit::AtLeast(min) => format!(">= {min}{unit}"),
            Limit::AtMost(max) => format!("<= {max}{unit}"),
        }
    }
}

impl Requirement {
    fn of_value(what: String, limit: Limit, value: f64, unit: &str) -> Requirement {
        Requirement {
            what,
            limit: limit.text(unit),
            measured: format!("{value:.2}{unit}"),
            is_met: limit.is_met(value),
            is_close: false,
        }
    }

    /// Decides by the median.
    fn of_estimate(what: String, limit: Limit, of: &Estimate, unit: &str) -> Requirement {
        Requirement {
            what,
            limit: limit.text(unit),
            measured: of.text(|value| format!("{value:.2}")) + unit,
            is_met: limit.is_met(of.median),
            is_close: of.spans(limit.value()),
        }
    }

    /// The result in words.
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.is_met, self.is_close) {
            (true, false) => "met",
            (true, true) => "met, but the interval holds the limit",
            (false, false) => "**missed**",
            (false, true) => "**missed**, but the interval holds the limit",
        }
    }
}

/// Checks every requirement that the results allow to check.
pub(crate) fn check(results: &[CaseResult], starts: &[StartResult]) -> Vec<Requirement> {
    let mut all = Vec::new();
    for result in results {
        match result.case.question {
            Question::Compare if result.case.senders.is_some() => {}
            Question::Compare => check_comparison(result, &mut all),
            Question::Isolation(_) => check_isolation(result, &mut all),
            Question::Steady => check_gathering(result, &mut all),
        }
    }

    if let Some(start) = starts.iter().find(|start| start.contender == WEIR) {
        let what = "start of the process to the first datagram forwarded".to_owned();
        let limit = Limit::AtMost(START_MS_MAX);
        all.push(Requirement::of_value(what, limit, start.median_ms(), " ms"));
    }
    all
}

fn check_comparison(result: &CaseResult, all: &mut Vec<Requirement>) {
    let case = result.case.load_label();
    let Some(weir) = result.of(WEIR) else { return };

    if let Some(rate) = result.comparison(WEIR, Quantity::Rate) {
        let what = format!("highest rate / better C loop, {case}");
        let limit = Limit::AtLeast(RATE_RATIO_MIN);
        let mut one = Requirement::of_estimate(what, limit, rate, "");
        if weir.is_limited_by_load() {
            one.measured.push_str(LIMITED_BY_LOAD);
        }
        all.push(one);
    }

    if let Some(cpu) = result.comparison(WEIR, Quantity::Cpu) {
        let what = format!("CPU per copy / better C loop, {case}");
        all.push(Requirement::of_estimate(what, Limit::AtMost(CPU_RATIO_MAX), cpu, ""));
    }

    if let Some(p99) = result.comparison(WEIR, Quantity::AddedP99) {
        let what = format!("p99 added latency at half load - C loop, {case}");
        let limit = Limit::AtMost(ADDED_P99_MORE_US_MAX);
        all.push(Requirement::of_estimate(what, limit, p99, " us"));
    }

    if result.case.is_main() {
        let mib = weir.resident_peak_kib as f64 / 1_024.0;
        let what = format!("peak resident memory, {case}");
        all.push(Requirement::of_value(what, Limit::AtMost(RESIDENT_MIB_MAX), mib, " MiB"));
    }
}

fn check_isolation(result: &CaseResult, all: &mut Vec<Requirement>) {
    let is_limited = result.measured.first().is_some_and(Measured::is_limited_by_load);
    for one in &result.measured {
        let Contender::Weir(Weir { beside: Some(dead_end), schedule, .. }) = one.contender else {
            continue;
        };

        if result.case.reach == Reach::Cable && dead_end == DeadEnd::Refusing {
            // Weir must keep sending to it as to a live target, because an ICMP error from another host may be forged. The
            // target then costs its copy, and the ratio shows how much that is.
            continue;
        }

        let (dead_end, schedule) = (dead_end.label(), schedule.name());
        let case = format!("{}, {schedule}", result.case.load_label());
        if let Some(rate) = result.comparison(one.contender, Quantity::Rate) {
            let what = format!("highest rate with / without {dead_end}, {case}");
            let limit = Limit::AtLeast(ISOLATION_RATIO_MIN);
            let mut requirement = Requirement::of_estimate(what, limit, rate, "");
            if is_limited {
                requirement.measured.push_str(LIMITED_BY_LOAD);
            }
            all.push(requirement);
        }

        let what = format!("with {dead_end} at 0.9 of the rate without, {case}");
        all.push(check_hold(what, one));
    }
}

/// Added to a ratio if Weir alone was limited by the generator: the ratio is then not that of the two highest rates.
const LIMITED_BY_LOAD: &str = " (Weir took all that the generator could offer)";

fn check_hold(what: String, one: &Measured) -> Requirement {
    let lost: u64 = one.held.iter().map(|held| held.lost).sum();
    let failed = one.held.iter().filter(|held| !held.keeps_up).count();
    Requirement {
        what,
        limit: "keeps up, loses nothing".to_owned(),
        measured: format!("{failed} of {} attempts failed, {lost} copies lost", one.held.len()),
        is_met: failed == 0 && lost == 0 && !one.held.is_empty(),
        is_close: false,
    }
}

fn check_gathering(result: &CaseResult, all: &mut Vec<Requirement>) {
    let [on, off] = [Gathering::On, Gathering::Off].map(Contender::gathering);
    let case = result.case.label();
    let mut check = |name: &str, quantity, max, unit| {
        let (what, limit) = (format!("{name}, {case}"), Limit::AtMost(max));
        let pair = result.pair(on, off, quantity);
        all.extend(pair.map(|pair| Requirement::of_estimate(what, limit, &pair, unit)));
    };
    check("CPU per copy with / without gathering", Quantity::Cpu, GATHERING_CPU_RATIO_MAX, "");
    let more = GATHERING_MORE_US_MAX;
    check("p50 latency with - without gathering", Quantity::AddedP50, more, " us");
    check("p99 latency with - without gathering", Quantity::AddedP99, more, " us");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Held;

    fn estimate(values: &[f64]) -> Estimate {
        Estimate::of(values.iter().copied()).unwrap()
    }

    #[test]
    fn the_median_decides_and_an_interval_that_holds_the_limit_is_named() {
        let check = |limit, values: &[f64], verdict: &str| {
            let one = Requirement::of_estimate(String::new(), limit, &estimate(values), "");
            assert_eq!(one.verdict(), verdict, "{}", one.measured);
        };
        let (least, most) = (Limit::AtLeast(1.0), Limit::AtMost(1.0));
        check(least, &[1.0, 1.1, 1.2], "met");
        check(least, &[0.9, 1.1, 1.2], "met, but the interval holds the limit");
        check(least, &[0.9, 0.95, 1.2], "**missed**, but the interval holds the limit");
        check(least, &[0.8, 0.9, 0.99], "**missed**");
        check(most, &[0.8, 0.9, 0.99], "met");
        check(most, &[0.9, 1.01, 1.2], "**missed**, but the interval holds the limit");
    }

    #[test]
    fn nothing_held_is_no_proof_and_one_failure_is_one_too_many() {
        let held = |keeps_up, lost| Held { rate_per_sec: 1.0, keeps_up, lost };
        let check = |held: Vec<Held>| {
            let one = Measured { held, ..Measured::nothing_yet(Contender::WEIR_INLINE) };
            check_hold(String::new(), &one).is_met
        };
        assert!(check(vec![held(true, 0); 7]));
        assert!(!check(vec![held(true, 0), held(false, 0)]));
        assert!(!check(vec![held(true, 0), held(true, 1)]));
        assert!(!check(Vec::new()));
    }
}
