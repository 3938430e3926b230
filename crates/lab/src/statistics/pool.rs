/// A number that may be a lower bound of the true value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub value: f64,
    /// Whether the true value may be higher: messages that had not arrived count with their time so far.
    pub at_least: bool,
}

/// Times of several runs combined, with a weight for each run.
///
/// A run consists of two ascending lists: exact times, and lower bounds (right-censored times). A list that is not in
/// ascending order leads to wrong quantiles, but to nothing worse.
pub struct Pool<'a> {
    runs: Vec<(&'a [u64], &'a [u64])>,
    sums: Vec<f64>,
    /// Every distinct value in ascending order: the possible quantiles.
    candidates: Vec<u64>,
}

impl<'a> Pool<'a> {
    /// `runs` yields the exact times and the lower bounds of each run, both in ascending order.
    pub fn new(runs: impl IntoIterator<Item = (&'a [u64], &'a [u64])>) -> Pool<'a> {
        let runs: Vec<(&[u64], &[u64])> = runs.into_iter().collect();
        let sum = |values: &[u64]| values.iter().map(|&v| v as f64).sum::<f64>();
        let sums = runs.iter().map(|(exact, bounds)| sum(exact) + sum(bounds)).collect();
        let mut candidates: Vec<u64> =
            runs.iter().flat_map(|(exact, bounds)| exact.iter().chain(*bounds)).copied().collect();
        candidates.sort_unstable();
        candidates.dedup();
        Pool { runs, sums, candidates }
    }

    /// The mean over all messages of all runs; `None` without any message. A lower bound if it includes bounds.
    pub fn mean(&self, weights: &[u32]) -> Option<Figure> {
        let (mut count, mut sum, mut at_least) = (0, 0.0, false);
        for ((&weight, (exact, bounds)), run_sum) in weights.iter().zip(&self.runs).zip(&self.sums)
        {
            count += u64::from(weight) * (exact.len() + bounds.len()) as u64;
            sum += f64::from(weight) * run_sum;
            at_least |= weight > 0 && !bounds.is_empty();
        }
        (count > 0).then(|| Figure { value: sum / count as f64, at_least })
    }

    /// The quantile `share` (0 to 1) over all messages of all runs: the smallest value that at least this share of them
    /// does not exceed (the inverse of the empirical distribution function; type 1 of Hyndman and Fan 1996,
    /// `numpy.quantile(method="inverted_cdf")`). No interpolation: the result is a time that was measured. 0 is the
    /// smallest value, 1 the largest. `None` without any message.
    ///
    /// Bounds are ordered by their value, so the result is a lower bound of the true quantile. It is exact, and marked
    /// as exact, if so many exact times are at or below it that no bound can change it.
    pub fn quantile(&self, weights: &[u32], share: f64) -> Option<Figure> {
        let total: u64 = self.count(weights, |values| values.len());
        let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
        let up_to =
            |value: u64| self.count(weights, |values| values.partition_point(|&v| v <= value));
        let at = self.candidates.partition_point(|&value| up_to(value) < rank);
        let value = *self.candidates.get(at).filter(|_| total > 0)?;
        let exact = |(exact, _): &(&[u64], &[u64])| exact.partition_point(|&v| v <= value) as u64;
        let exact: u64 =
            self.runs.iter().zip(weights).map(|(run, &w)| u64::from(w) * exact(run)).sum();
        Some(Figure { value: value as f64, at_least: exact < rank })
    }

    fn count(&self, weights: &[u32], of: impl Fn(&[u64]) -> usize) -> u64 {
        let pairs = self.runs.iter().zip(weights);
        pairs
            .map(|((exact, bounds), &weight)| u64::from(weight) * (of(exact) + of(bounds)) as u64)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(exact: &[u64], bounds: &[u64], share: f64, value: f64, at_least: bool) {
        let pool = Pool::new([(exact, bounds)]);
        assert_eq!(
            pool.quantile(&[1], share),
            Some(Figure { value, at_least }),
            "{share} of {exact:?} and {bounds:?}"
        );
    }

    // numpy 2.4.6: numpy.quantile([1,2,3,4,5,6,7,8,9,10], [0, .25, .5, .501, .99, 1], method="inverted_cdf")
    // = [1, 3, 5, 6, 10, 10].
    #[test]
    fn quantiles_are_measured_values() {
        let values: Vec<u64> = (1..=10).collect();
        for (share, value) in
            [(0.0, 1.0), (0.25, 3.0), (0.5, 5.0), (0.501, 6.0), (0.99, 10.0), (1.0, 10.0)]
        {
            check(&values, &[], share, value, false);
        }
        check(&[7], &[], 0.5, 7.0, false);
        check(&[2, 2, 2, 9], &[], 0.75, 2.0, false);
    }

    #[test]
    fn a_bound_makes_what_it_can_move_a_lower_bound() {
        // Four messages arrived after 1 to 4; one has taken 2 so far and may take any time. Sorted: 1 2 2+ 3 4.
        check(&[1, 2, 3, 4], &[2], 0.4, 2.0, false);
        check(&[1, 2, 3, 4], &[2], 0.6, 2.0, true);
        check(&[1, 2, 3, 4], &[2], 0.8, 3.0, true);
        check(&[1, 2, 3, 4], &[2], 1.0, 4.0, true);
        check(&[], &[5], 0.5, 5.0, true);
        let pool = Pool::new([(&[1, 2, 3, 4][..], &[2][..])]);
        assert_eq!(pool.mean(&[1]), Some(Figure { value: 2.4, at_least: true }));
    }

    #[test]
    fn weights_count_a_run_so_often() {
        let pool = Pool::new([(&[1, 1][..], &[][..]), (&[9][..], &[][..]), (&[50][..], &[60][..])]);
        assert_eq!(pool.mean(&[1, 4, 0]), Some(Figure { value: 38.0 / 6.0, at_least: false }));
        assert_eq!(pool.quantile(&[1, 4, 0], 0.5).unwrap().value, 9.0);
        assert_eq!(pool.quantile(&[1, 1, 0], 0.5).unwrap().value, 1.0);
        assert_eq!(pool.quantile(&[0, 0, 1], 1.0), Some(Figure { value: 60.0, at_least: true }));
    }

    #[test]
    fn nothing_has_no_figure() {
        let pool = Pool::new([(&[][..], &[][..])]);
        assert_eq!((pool.mean(&[1]), pool.quantile(&[1], 0.5)), (None, None));
        let pool = Pool::new([]);
        assert_eq!((pool.mean(&[]), pool.quantile(&[], 0.5)), (None, None));
    }
}
