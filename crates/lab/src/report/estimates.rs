//! Estimates as people read them: the figure, and the interval around it.

use crate::statistics::{Estimate, Interval};
use text::{percent, plural, time, time_range};

/// Two times with two significant digits, for narrow columns: `110-190ms`.
pub(super) fn short_times(interval: Interval) -> String {
    time_range(interval.low, interval.high)
}

/// `1.34 s (0.92 to 1.80 s)`, with `≥` before a lower bound.
pub(super) fn time_estimate(estimate: &Estimate) -> String {
    let interval = estimate.interval.map(|i| format!(" ({} to {})", time(i.low), time(i.high)));
    format!("{}{}{}", bound_sign(estimate), time(estimate.value), interval.unwrap_or_default())
}

/// `84.0/s (76.1 to 91.3)`.
pub(super) fn rate_estimate(estimate: &Estimate) -> String {
    let interval = estimate.interval.map(|i| format!(" ({:.1} to {:.1})", i.low, i.high));
    format!("{}{:.1}/s{}", bound_sign(estimate), estimate.value, interval.unwrap_or_default())
}

/// `≥` where the figure is a lower bound, else nothing.
pub(super) fn bound_sign(estimate: &Estimate) -> &'static str {
    if estimate.at_least { "≥" } else { "" }
}

/// `5 runs × 60 s`, `1 run × 300 s`.
pub(super) fn runs_by_length(runs: u32, seconds: f64) -> String {
    format!("{} × {} s", plural(runs.into(), "run", "runs"), seconds.round())
}

/// `84.1 % (80.2 to 88 %)`.
pub(super) fn percent_estimate(estimate: &Estimate) -> String {
    let interval = |i: Interval| {
        format!(" ({} to {})", percent(i.low).trim_end_matches(" %"), percent(i.high))
    };
    format!("{}{}", percent(estimate.value), estimate.interval.map(interval).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_is_not_runs() {
        assert_eq!(runs_by_length(5, 59.98), "5 runs × 60 s");
        assert_eq!(runs_by_length(1, 300.0), "1 run × 300 s");
    }
}
