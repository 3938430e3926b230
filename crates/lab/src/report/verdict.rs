//! What was claimed, what came out here, and whether that is the same.

mod checks;
mod claims;

pub(super) use checks::checks;
pub(super) use claims::claims;

use crate::experiment::model::{Point, Schedule, Settings, TransportName};
use crate::statistics::{Estimate, Interval, Summary};
use serde::Serialize;

/// One claim and what came out here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// `C1` to `C10` for the article's claims, `M1` and so on for our own checks.
    pub id: &'static str,
    /// The claim, as a sentence.
    pub claim: String,
    /// What came out here, with intervals.
    pub here: String,
    pub outcome: Outcome,
    /// How far from the claim, or the band within which it counts as reproduced.
    pub difference: String,
    /// What limits the comparison: run lengths, too few runs; empty if nothing does.
    pub caveat: String,
}

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The figure lies in the claim's band.
    Reproduced,
    /// The figure lies outside the band; the effect is there all the same.
    DirectionOnly,
    /// The figure lies outside the band, and its interval reaches into it.
    Unclear,
    /// The whole interval lies outside the band.
    Differs,
    /// Nothing was run that could show it.
    NotTested,
}

impl Outcome {
    /// One or two words for tables.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Reproduced => "reproduced",
            Outcome::DirectionOnly => "in direction",
            Outcome::Unclear => "unclear",
            Outcome::Differs => "differs",
            Outcome::NotTested => "not tested",
        }
    }

    /// The same for checks, which hold or do not.
    pub fn check_label(self) -> &'static str {
        match self {
            Outcome::Reproduced => "holds",
            Outcome::NotTested => "not tested",
            Outcome::Unclear => "unclear",
            Outcome::DirectionOnly | Outcome::Differs => "does not hold",
        }
    }
}

/// What verdicts are made from.
pub(super) struct Evidence<'a> {
    pub(super) settings: &'a Settings,
    pub(super) points: &'a [&'a Point],
    pub(super) summaries: &'a [Summary],
}

impl<'a> Evidence<'a> {
    /// The article's schedule, by loss ascending.
    fn closed_loop(&self, transport: &str) -> Vec<(&'a Point, &'a Summary)> {
        self.of(|name, schedule| name.as_str() == transport && schedule == Schedule::ClosedLoop)
    }

    fn of(
        &self,
        which: impl Fn(&TransportName, Schedule) -> bool,
    ) -> Vec<(&'a Point, &'a Summary)> {
        let pairs = self.points.iter().copied().zip(self.summaries);
        pairs.filter(|(point, _)| which(&point.transport, point.schedule)).collect()
    }
}

/// The point nearest to `loss`, if it is no further than a percentage point: per-link rates in whole percents give path
/// losses such as 19 %, and the article's axis may be either (its figures fit both).
fn near<'a>(series: &[(&'a Point, &'a Summary)], loss: f64) -> Option<(&'a Point, &'a Summary)> {
    let distance = |point: &Point| (point.configured_loss - loss).abs();
    let nearest = series.iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)))?;
    (distance(nearest.0) < 0.0101).then_some(*nearest)
}

/// Whether `value` lies in `band`, or its interval reaches into it.
fn judge(value: f64, interval: Option<Interval>, band: (f64, f64)) -> Outcome {
    let reaches = |i: Interval| i.low <= band.1 && i.high >= band.0;
    match (value >= band.0 && value <= band.1, interval) {
        (true, _) => Outcome::Reproduced,
        (false, Some(interval)) if reaches(interval) => Outcome::Unclear,
        _ => Outcome::Differs,
    }
}

/// A lower bound below the band may in truth lie in it.
fn judge_estimate(estimate: &Estimate, band: (f64, f64)) -> Outcome {
    let outcome = judge(estimate.value, estimate.interval, band);
    let below = estimate.at_least && estimate.value < band.0;
    if below && outcome == Outcome::Differs { Outcome::Unclear } else { outcome }
}

/// `1.9 × the article's`.
fn factor(here: f64, article: f64) -> String {
    format!("{:.2} × the article's", here / article)
}

fn not_tested(id: &'static str, claim: &str, reason: &str) -> Verdict {
    Verdict {
        id,
        claim: claim.to_owned(),
        here: String::new(),
        outcome: Outcome::NotTested,
        difference: String::new(),
        caveat: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_met_missed_or_reached() {
        let interval = |low, high| Some(Interval { low, high });
        assert_eq!(judge(0.13, None, (0.12, 0.16)), Outcome::Reproduced);
        assert_eq!(judge(0.13, interval(0.05, 0.2), (0.12, 0.16)), Outcome::Reproduced);
        assert_eq!(judge(0.11, interval(0.10, 0.13), (0.12, 0.16)), Outcome::Unclear);
        assert_eq!(judge(0.11, interval(0.10, 0.115), (0.12, 0.16)), Outcome::Differs);
        assert_eq!(judge(f64::INFINITY, None, (0.12, 0.16)), Outcome::Differs);
    }

    #[test]
    fn a_lower_bound_below_the_band_is_unclear() {
        let estimate = |value, at_least| Estimate { value, at_least, interval: None };
        assert_eq!(judge_estimate(&estimate(5.0, true), (15.0, 60.0)), Outcome::Unclear);
        assert_eq!(judge_estimate(&estimate(5.0, false), (15.0, 60.0)), Outcome::Differs);
        assert_eq!(judge_estimate(&estimate(70.0, true), (15.0, 60.0)), Outcome::Differs);
    }
}
