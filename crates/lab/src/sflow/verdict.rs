//! What has to hold, and whether it does, with room for chance.

use super::{Detection, Point};
use crate::statistics::clopper_pearson;
use serde::Serialize;
use text::percent;

/// How far the collector's figures may be from the truth, on average.
const BIAS_MAX: f64 = 0.01;

/// How many of 95 % intervals have to hold the truth.
const COVERAGE: std::ops::RangeInclusive<f64> = 0.93..=0.97;

/// Within so many seconds 99 % of all attacks have to be noticed.
const DETECTION_MAX_S: f64 = 1.0;

/// A check fails only on what chance brings once in 10,000 times, so that all of them together fail less than once in a hundred
/// times if everything is right: there are some 40.
const CONFIDENCE: f64 = 0.9999;
/// The same in standard errors.
const ERRORS: f64 = 3.89;

/// What is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The collector's figures are right on average.
    Bias,
    /// Their intervals hold the truth as often as they say.
    Coverage,
    /// Samples times the configured rate are low by exactly what was lost.
    RawLowByLoss,
    /// Attacks are noticed in time.
    Detection,
    /// Nothing else is.
    FalseAlarms,
}

impl Rule {
    /// For people.
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

/// One thing that has to hold.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// What it is about.
    pub rule: Rule,
    /// Where: path and loss.
    pub place: String,
    /// What was measured, for people.
    pub measured: String,
    /// What has to be.
    pub wanted: &'static str,
    /// Whether it is.
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
    // Of a single run, chance is unknown.
    let noise = |error: f64| if point.runs > 1 { ERRORS * error } else { f64::INFINITY };

    let bias = collector.mean - 1.0;
    let is_unbiased = bias.abs() - noise(collector.error) < BIAS_MAX;
    // Flows of one run are not independent of each other: as if each run had one interval.
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
