//! The requirements, and whether they are met, with allowance for chance.

use super::{Detection, Point};
use crate::statistics::clopper_pearson;
use serde::Serialize;
use text::percent;

/// Maximum mean deviation of the collector's figures from the truth.
const BIAS_MAX: f64 = 0.01;

/// Share of the 95 % intervals that must contain the truth.
const COVERAGE: std::ops::RangeInclusive<f64> = 0.93..=0.97;

/// 99 % of all attacks must be noticed within this many seconds.
const DETECTION_MAX_S: f64 = 1.0;

/// By chance alone, a check fails once in 10,000 times. With some 40 checks, fewer than one in a hundred experiments fails if
/// everything is right.
const CONFIDENCE: f64 = 0.9999;
/// The same as a number of standard errors.
const ERRORS: f64 = 3.89;

/// What a check is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The collector's figures are right on average.
    Bias,
    /// The collector's intervals contain the truth as often as they claim.
    Coverage,
    /// Samples times the configured rate are too low by exactly the loss.
    RawLowByLoss,
    /// Attacks are noticed in time.
    Detection,
    /// Nothing else causes an event.
    FalseAlarms,
}

impl Rule {
    /// The rule as readable text.
    pub fn label(self) -> &'static str {
        match self {
            Rule::Bias => "bias",
            Rule::Coverage => "coverage",
            Rule::RawLowByLoss => "raw × N",
            Rule::Detection => "time to event",
            Rule::FalseAlarms => "false alarms",
        }
    }
}

/// One requirement and its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// The rule that was checked.
    pub rule: Rule,
    /// Path and loss at which it was checked.
    pub place: String,
    /// What was measured, as readable text.
    pub measured: String,
    /// What is required.
    pub wanted: &'static str,
    /// Whether the requirement is met.
    pub holds: bool,
}

pub(super) fn checks(points: &[Point], detections: &[Detection]) -> Vec<Check> {
    let of_points = points.iter().flat_map(of_point);
    of_points.chain(detections.iter().flat_map(of_detection)).collect()
}

fn of_point(point: &Point) -> [Check; 3] {
    let [raw, _, collector] = &point.accuracy;
    let place = format!("{}, {} lost", point.path.label(), percent(point.loss));
    let check = |rule, measured, wanted, holds| Check {
        rule,
        place: place.clone(),
        measured,
        wanted,
        holds: holds && point.runs > 0,
    };
    // With a single run, the effect of chance is unknown.
    let noise = |error: f64| if point.runs > 1 { ERRORS * error } else { f64::INFINITY };

    let bias = collector.mean - 1.0;
    let is_unbiased = bias.abs() - noise(collector.error) < BIAS_MAX;
    // Flows of one run are not independent of each other, so each run counts as one interval.
    let runs_covered = (collector.coverage() * point.runs as f64).round() as u64;
    let chance = clopper_pearson(runs_covered, point.runs, CONFIDENCE);
    let is_covered = chance.high >= *COVERAGE.start() && chance.low <= *COVERAGE.end();
    let is_low = point.raw_beyond_loss.abs() - noise(raw.error) < BIAS_MAX;

    [
        check(
            Rule::Bias,
            format!("{:+.2} % ± {:.2}", bias * 100.0, collector.error * 196.0),
            "within 1 %",
            is_unbiased,
        ),
        check(
            Rule::Coverage,
            format!("{:.1} % of {}", collector.coverage() * 100.0, collector.figures),
            "93 to 97 %",
            is_covered,
        ),
        check(
            Rule::RawLowByLoss,
            format!(
                "{:+.2} % with {:.2} % lost",
                (raw.mean - 1.0) * 100.0,
                point.measured_loss * 100.0
            ),
            "low by what was lost, within 1 %",
            is_low,
        ),
    ]
}

fn of_detection(detection: &Detection) -> [Check; 2] {
    let place = format!("attacks, {} lost", percent(detection.loss));
    let shown = |seconds: Option<f64>| {
        seconds.map_or("never".to_owned(), |seconds| format!("{:.0} ms", seconds * 1e3))
    };
    let check = |rule, measured, wanted, holds| Check {
        rule,
        place: place.clone(),
        measured,
        wanted,
        holds,
    };
    [
        check(
            Rule::Detection,
            format!("p99 {}, median {}", shown(detection.p99_s), shown(detection.median_s)),
            "p99 below 1 s",
            detection.p99_s.is_some_and(|p99_s| p99_s < DETECTION_MAX_S),
        ),
        check(
            Rule::FalseAlarms,
            format!("{} in {} attacks", detection.false_alarms, detection.attacks),
            "none",
            detection.false_alarms == 0 && detection.attacks > 0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Accuracy, Estimator, Path};
    use super::*;

    fn point(runs: u64, mean: f64, coverage: f64, raw: f64) -> Point {
        let figures = 3 * runs;
        let one = |estimator, mean| Accuracy {
            estimator,
            mean,
            error: 0.02 / (runs as f64).sqrt(),
            covered: (figures as f64 * coverage) as u64,
            figures,
        };
        Point {
            path: Path::Simulated,
            loss: 0.2,
            measured_loss: 0.2,
            runs,
            accuracy: [
                one(Estimator::Raw, raw),
                one(Estimator::AgentRate, raw),
                one(Estimator::Collector, mean),
            ],
            raw_beyond_loss: raw - 0.8,
        }
    }

    fn failing(point: &Point) -> Vec<Rule> {
        let checks = of_point(point).into_iter();
        checks.filter(|check| !check.holds).map(|check| check.rule).collect()
    }

    #[test]
    fn a_right_collector_passes_and_each_fault_fails_its_rule() {
        assert_eq!(failing(&point(2_000, 1.001, 0.955, 0.801)), []);
        assert_eq!(failing(&point(2_000, 0.985, 0.955, 0.8)), [Rule::Bias]);
        assert_eq!(failing(&point(2_000, 1.0, 0.90, 0.8)), [Rule::Coverage]);
        assert_eq!(failing(&point(2_000, 1.0, 0.999, 0.8)), [Rule::Coverage]);
        assert_eq!(failing(&point(2_000, 1.0, 0.95, 0.85)), [Rule::RawLowByLoss]);
        assert_eq!(failing(&point(0, 1.0, 0.95, 0.8)).len(), 3);
    }

    #[test]
    fn few_runs_are_given_the_benefit_of_the_doubt() {
        assert_eq!(failing(&point(50, 1.012, 0.91, 0.8)), []);
        assert_eq!(failing(&point(50, 0.8, 0.0, 0.8)), [Rule::Bias, Rule::Coverage]);
    }

    #[test]
    fn attacks_have_to_be_noticed_in_time_and_nothing_else() {
        let failing = |attacks, false_alarms, time_s: f64| {
            let times = vec![time_s; 100];
            let checks = of_detection(&Detection::of(0.5, attacks, false_alarms, times));
            checks.map(|check| !check.holds)
        };
        assert_eq!(failing(100, 0, 0.6), [false, false]);
        assert_eq!(failing(100, 0, 1.1), [true, false]);
        assert_eq!(failing(102, 0, 0.6), [true, false]);
        assert_eq!(failing(100, 1, 0.6), [false, true]);
    }
}
