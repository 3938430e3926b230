//! The measurements, and comparisons between two of them.

use crate::case::{Case, Plan, Question};
use crate::contender::{C_LOOPS, Contender};
use crate::estimate::{Estimate, median};
use crate::search::{Found, Held};
use crate::stage::Trial;
use serde::Serialize;

/// Added latency in microseconds: through the relay, minus directly to the receiver.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Latency {
    pub(crate) rate_per_sec: f64,
    /// The rate that the generator reached, one datagram at a time.
    pub(crate) sent_per_sec: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) direct_p50_us: f64,
    pub(crate) direct_p99_us: f64,
}

/// CPU time of a relay per copy, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Cpu {
    pub(crate) rate_per_sec: f64,
    pub(crate) ns_per_copy: f64,
}

/// Everything about one relay in one case. One entry per repetition; empty if the case does not measure it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) contender: Contender,
    pub(crate) found: Vec<Found>,
    pub(crate) held: Vec<Held>,
    pub(crate) cpu: Vec<Cpu>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) resident_kib: u64,
    pub(crate) resident_peak_kib: u64,
}

impl Measured {
    pub(crate) fn nothing_yet(contender: Contender) -> Measured {
        Measured {
            contender,
            found: Vec::new(),
            held: Vec::new(),
            cpu: Vec::new(),
            latency: Vec::new(),
            resident_kib: 0,
            resident_peak_kib: 0,
        }
    }

    /// Median over the repetitions; NaN if the case does not measure it.
    pub(crate) fn median(&self, quantity: Quantity) -> f64 {
        let repetitions = self.found.len().max(self.cpu.len());
        median((0..repetitions).filter_map(|n| quantity.of(self, n)))
    }

    /// Whether the generator was the limit in most repetitions, so that the median rate is only a lower bound.
    pub(crate) fn is_limited_by_load(&self) -> bool {
        let limited = self.found.iter().filter(|found| found.is_limited_by_load).count();
        limited * 2 > self.found.len()
    }
}

/// A compared quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Quantity {
    /// Highest rate without loss, in datagrams per second. Compared as a ratio; more is better.
    Rate,
    /// CPU time per copy, in nanoseconds. Compared as a ratio; less is better.
    Cpu,
    /// The same with far more load than the relay can forward.
    SaturatedCpu,
    /// Added latency in microseconds. Compared as a difference, because it may be 0, or negative by chance.
    AddedP50,
    AddedP99,
}

impl Quantity {
    /// The value of one repetition, counted from 0.
    pub(crate) fn of(self, one: &Measured, repetition: usize) -> Option<f64> {
        let found = one.found.get(repetition);
        let latency = one.latency.get(repetition);
        match self {
            Quantity::Rate => found.map(|found| found.rate_per_sec),
            Quantity::SaturatedCpu => found.map(|found| found.saturation_cpu_ns_per_copy),
            Quantity::Cpu => one.cpu.get(repetition).map(|cpu| cpu.ns_per_copy),
            Quantity::AddedP50 => latency.map(|latency| latency.p50_us - latency.direct_p50_us),
            Quantity::AddedP99 => latency.map(|latency| latency.p99_us - latency.direct_p99_us),
        }
    }

    fn is_latency(self) -> bool {
        matches!(self, Quantity::AddedP50 | Quantity::AddedP99)
    }

    fn better(self, a: f64, b: f64) -> f64 {
        if self == Quantity::Rate { a.max(b) } else { a.min(b) }
    }

    fn compare(self, ours: f64, theirs: f64) -> f64 {
        if self.is_latency() { ours - theirs } else { ours / theirs }
    }
}

/// A relay compared with its reference: a ratio, or a difference in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) contender: Contender,
    pub(crate) quantity: Quantity,
    pub(crate) estimate: Estimate,
}

/// A case with all its results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult {
    pub(crate) case: Case,
    pub(crate) plan: Plan,
    pub(crate) measured: Vec<Measured>,
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) trials: Vec<Trial>,
}

impl CaseResult {
    pub(crate) fn new(
        case: Case,
        plan: Plan,
        measured: Vec<Measured>,
        trials: Vec<Trial>,
    ) -> CaseResult {
        let comparisons = compare_all(case, plan.repetitions, &measured);
        CaseResult { case, plan, measured, comparisons, trials }
    }

    pub(crate) fn of(&self, contender: Contender) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.contender == contender)
    }

    /// A relay compared with the case's reference.
    pub(crate) fn comparison(&self, contender: Contender, quantity: Quantity) -> Option<&Estimate> {
        let mut all = self.comparisons.iter();
        let found = all.find(|one| one.contender == contender && one.quantity == quantity);
        found.map(|one| &one.estimate)
    }

    /// One relay compared with another, repetition by repetition.
    pub(crate) fn pair(&self, one: Contender, other: Contender, of: Quantity) -> Option<Estimate> {
        let (one, other) = (self.of(one)?, self.of(other)?);
        let values = (0..self.plan.repetitions)
            .filter_map(|n| Some(of.compare(of.of(one, n)?, of.of(other, n)?)));
        Estimate::of(values)
    }

    /// Share of the processors that other processes, or the host, used during the median run.
    pub(crate) fn disturbance(&self) -> f64 {
        median(self.trials.iter().map(|trial| trial.foreign_share + trial.stolen_share))
    }
}

fn compare_all(case: Case, repetitions: usize, measured: &[Measured]) -> Vec<Comparison> {
    let quantities: &[Quantity] = match case.question {
        Question::Compare => {
            &[Quantity::Rate, Quantity::Cpu, Quantity::AddedP50, Quantity::AddedP99]
        }
        Question::Isolation(_) => &[Quantity::Rate],
        Question::Steady => &[Quantity::Cpu, Quantity::AddedP50, Quantity::AddedP99],
    };

    let mut comparisons = Vec::new();
    for one in measured {
        for quantity in quantities.iter().copied() {
            let values = (0..repetitions).filter_map(|n| {
                let theirs = reference(case, measured, quantity, n)?;
                Some(quantity.compare(quantity.of(one, n)?, theirs))
            });
            if let Some(estimate) = Estimate::of(values) {
                comparisons.push(Comparison { contender: one.contender, quantity, estimate });
            }
        }
    }
    comparisons
}

/// The reference of a repetition: for isolation, Weir without the dead end; otherwise the better C loop of this repetition.
/// Latencies are compared with the C loop of the higher rate, which was timed at the same load as Weir; the other one may have
/// been timed at a fraction of it.
fn reference(
    case: Case,
    measured: &[Measured],
    quantity: Quantity,
    repetition: usize,
) -> Option<f64> {
    if let Question::Isolation(schedule) = case.question {
        let without = Contender::weir(schedule);
        let without = measured.iter().find(|one| one.contender == without)?;
        return quantity.of(without, repetition);
    }

    let loops = || measured.iter().filter(|one| C_LOOPS.contains(&one.contender));
    let rate = |one: &&Measured| Quantity::Rate.of(one, repetition);
    let fastest = loops()
        .filter(|one| rate(one).is_some())
        .max_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)));

    match fastest {
        Some(fastest) if quantity.is_latency() => quantity.of(fastest, repetition),
        _ => loops()
            .filter_map(|one| quantity.of(one, repetition))
            .reduce(|a, b| quantity.better(a, b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Pace, VARYING};
    use crate::contender::{DeadEnd, Schedule};

    const WEIR: Contender = Contender::WEIR_INLINE;

    /// Rates, CPU and added p99 for each repetition.
    fn measured(contender: Contender, of: &[(f64, f64, f64)]) -> Measured {
        let mut one = Measured::nothing_yet(contender);
        for (rate_per_sec, ns_per_copy, p99_us) in of.iter().copied() {
            one.found.push(Found { rate_per_sec, ..Found::default() });
            one.cpu.push(Cpu { ns_per_copy, ..Cpu::default() });
            one.latency.push(Latency { p99_us, ..Latency::default() });
        }
        one
    }

    fn result(question: Question, measured: Vec<Measured>) -> CaseResult {
        let case = Case::new(question, VARYING, 2);
        let plan = Plan::new(case, Pace::Quick, measured[0].found.len());
        CaseResult::new(case, plan, measured, Vec::new())
    }

    #[test]
    fn each_repetition_is_held_against_its_better_c_loop() {
        let result = result(
            Question::Compare,
            vec![
                measured(WEIR, &[(100.0, 50.0, 7.0), (100.0, 50.0, 7.0), (100.0, 50.0, 7.0)]),
                measured(
                    Contender::LimitRelayRuns,
                    &[(200.0, 100.0, 1.0), (50.0, 40.0, 2.0), (80.0, 50.0, 3.0)],
                ),
                measured(
                    Contender::LimitRelay,
                    &[(50.0, 25.0, 4.0), (100.0, 80.0, 5.0), (40.0, 200.0, 6.0)],
                ),
                measured(Contender::Socat, &[(900.0, 1.0, 0.0); 3]),
            ],
        );
        let check = |quantity, values: [f64; 3]| {
            assert_eq!(result.comparison(WEIR, quantity).unwrap().values, values, "{quantity:?}");
        };
        check(Quantity::Rate, [0.5, 1.0, 1.25]);
        check(Quantity::Cpu, [2.0, 1.25, 1.0]);
        check(Quantity::AddedP99, [6.0, 2.0, 4.0]);
    }

    #[test]
    fn a_dead_end_is_held_against_the_same_relay_without_it() {
        let beside = Contender::beside(Schedule::Inline, DeadEnd::Refusing);
        let result = result(
            Question::Isolation(Schedule::Inline),
            vec![
                measured(WEIR, &[(100.0, 0.0, 0.0), (200.0, 0.0, 0.0)]),
                measured(beside, &[(50.0, 0.0, 0.0), (190.0, 0.0, 0.0)]),
            ],
        );
        let rate = result.comparison(beside, Quantity::Rate).unwrap();
        assert_eq!(rate.values, [0.5, 0.95]);
    }

    #[test]
    fn without_a_c_loop_nothing_is_compared_with_one() {
        let result = result(Question::Compare, vec![measured(WEIR, &[(100.0, 50.0, 7.0)])]);
        assert!(result.comparisons.is_empty());
    }
}
