//! A median with a confidence interval.

use serde::Serialize;

/// Coverage that an interval must have, if there are enough values.
const COVERAGE_MIN: f64 = 0.95;

/// The median of some values, with an interval that contains the true median for any distribution.
///
/// The interval uses order statistics: from the k-th smallest to the k-th largest value, with the largest k that still covers 95
/// %. Each value is below the true median with probability 1/2, so the interval misses it with twice the probability of at most
/// k - 1 heads in n throws. For 7 values it is the whole range (98.4 %), for 11 values the 2nd to the 10th. Fewer than 6 values
/// cannot cover 95 %; `coverage` is then what their range covers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Probability that the interval contains the true median, 0 to 1.
    pub(crate) coverage: f64,
    /// The values, one for each repetition, in order.
    pub(crate) values: Vec<f64>,
}

impl Estimate {
    /// Estimates from the finite values; `None` if there are none.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Estimate> {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let (rank, coverage) = rank_and_coverage(sorted.len())?;
        Some(Estimate {
            median: median(sorted.iter().copied()),
            low: sorted[rank - 1],
            high: sorted[sorted.len() - rank],
            coverage,
            values,
        })
    }

    /// The median followed by its interval in brackets, or alone if both ends look the same.
    pub(crate) fn text(&self, number: impl Fn(f64) -> String) -> String {
        let (low, high) = (number(self.low), number(self.high));
        let median = number(self.median);
        if low == high { median } else { format!("{median} [{low}, {high}]") }
    }

    /// Whether a limit lies inside the interval, so that these values do not show on which side of it the median is.
    pub(crate) fn spans(&self, limit: f64) -> bool {
        self.low < limit && limit < self.high
    }
}

/// The rank from either end (from 1) of the narrowest interval of `count` values with enough coverage, and its coverage.
fn rank_and_coverage(count: usize) -> Option<(usize, f64)> {
    if count == 0 {
        return None;
    }

    let mut probability = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut tail = probability;
    let mut best = (1, 1.0 - 2.0 * tail);

    for rank in 2..=count.div_ceil(2) {
        // Probability of rank - 1 heads, computed from that of rank - 2.
        probability *= (count - rank + 2) as f64 / (rank - 1) as f64;
        tail += probability;
        let coverage = 1.0 - 2.0 * tail;
        if coverage < COVERAGE_MIN {
            break;
        }
        best = (rank, coverage);
    }
    Some(best)
}

/// The middle value, or the mean of the two middle ones; NaN without values.
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

    /// Ranks and coverages from tables of the sign test.
    #[test]
    fn intervals_are_those_of_order_statistics() {
        let check = |count, rank, percent: f64| {
            let (found, coverage) = rank_and_coverage(count).unwrap();
            assert_eq!(found, rank, "{count} values");
            assert!((coverage * 100.0 - percent).abs() < 0.05, "{count} values: {coverage}");
        };
        check(1, 1, 0.0);
        check(3, 1, 75.0);
        check(5, 1, 93.75);
        check(6, 1, 96.9);
        check(7, 1, 98.4);
        check(8, 1, 99.2);
        check(9, 2, 96.1);
        check(11, 2, 98.8);
        check(12, 3, 96.1);
        check(20, 6, 95.9);
        assert_eq!(rank_and_coverage(0), None);
    }

    #[test]
    fn an_estimate_leaves_out_what_is_not_finite() {
        let values = [5.0, f64::NAN, 1.0, 3.0, f64::INFINITY, 2.0, 4.0];
        let estimate = Estimate::of(values.into_iter()).unwrap();
        assert_eq!((estimate.low, estimate.median, estimate.high), (1.0, 3.0, 5.0));
        assert_eq!(estimate.values, [5.0, 1.0, 3.0, 2.0, 4.0]);
        assert!(estimate.spans(3.0) && !estimate.spans(5.0) && !estimate.spans(6.0));
        assert_eq!(estimate.text(|value| format!("{value:.1}")), "3.0 [1.0, 5.0]");
        assert_eq!(Estimate::of([f64::NAN].into_iter()), None);
    }
}
