//! Estimates in readable form: the figure and its interval.

use crate::statistics::{Estimate, Interval};
use text::{plural, time_range};

/// Two times with two significant digits, for narrow columns: `110-190ms`.
pub(super) fn short_times(interval: Interval) -> String {
    time_range(interval.low, interval.high)
}

/// `≥` if the figure is a lower bound, otherwise nothing.
pub(super) fn bound_sign(estimate: &Estimate) -> &'static str {
    if estimate.at_least { "≥" } else { "" }
}

/// `5 runs × 60 s`, `1 run × 300 s`.
pub(super) fn runs_by_length(runs: u32, seconds: f64) -> String {
    format!("{} × {} s", plural(runs.into(), "run", "runs"), seconds.round())
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
