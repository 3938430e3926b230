use super::pool::Figure;
use load::Random;
use serde::Serialize;
use std::collections::BTreeMap;

/// The range of the middle 95 % of the resamples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// A figure over all runs, with its interval over runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub value: f64,
    /// `value` is a lower bound: see [`Figure::at_least`].
    pub at_least: bool,
    /// `None` with fewer than two runs: a single run does not show how runs differ.
    pub interval: Option<Interval>,
}

/// The bootstrap over runs: percentile intervals (Efron 1979) from runs drawn with replacement.
///
/// With few runs such an interval is too narrow (for a normal mean of five runs, about 84 % instead of 95 %), and the
/// interval of a maximum cannot exceed the largest observed value. Both are reasons for more and longer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bootstrap {
    /// Number of resamples, at least 1.
    pub resamples: u32,
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Bootstrap {
        Bootstrap { resamples: 2_000, seed: 1 }
    }
}

impl Bootstrap {
    /// `statistic` receives how often each of the `runs` counts. It is computed once for each distinct draw.
    pub fn estimate(
        &self,
        runs: usize,
        statistic: impl Fn(&[u32]) -> Option<Figure>,
    ) -> Option<Estimate> {
        let figure = statistic(&vec![1; runs])?;
        let interval = (runs > 1).then(|| self.interval(runs, &statistic)).flatten();
        Some(Estimate { value: figure.value, at_least: figure.at_least, interval })
    }

    fn interval(
        &self,
        runs: usize,
        statistic: impl Fn(&[u32]) -> Option<Figure>,
    ) -> Option<Interval> {
        let mut random = Random::seeded(self.seed);
        let mut draws: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        for _ in 0..self.resamples {
            *draws.entry(draw(runs, &mut random)).or_default() += 1;
        }
        let values =
            draws.iter().filter_map(|(weights, &times)| Some((statistic(weights)?.value, times)));
        middle(values.flat_map(|(value, times)| std::iter::repeat_n(value, times)).collect())
    }
}

/// Draws `runs` runs with replacement, and returns how often each was drawn.
fn draw(runs: usize, random: &mut Random) -> Vec<u32> {
    let mut weights = vec![0; runs];
    for _ in 0..runs {
        weights[random.below(runs as u64) as usize] += 1;
    }
    weights
}

/// The 2.5 % and 97.5 % quantiles, as defined by [`super::Pool::quantile`].
fn middle(mut values: Vec<f64>) -> Option<Interval> {
    values.sort_unstable_by(f64::total_cmp);
    let rank = |share: f64| ((share * values.len() as f64).ceil() as usize).saturating_sub(1);
    Some(Interval { low: *values.get(rank(0.025))?, high: *values.get(rank(0.975))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of<'a>(values: &'a [f64]) -> impl Fn(&[u32]) -> Option<Figure> + 'a {
        |weights| {
            let sum: f64 = values.iter().zip(weights).map(|(v, &w)| v * f64::from(w)).sum();
            Some(Figure { value: sum / values.len() as f64, at_least: false })
        }
    }

    #[test]
    fn the_interval_of_three_runs_is_that_of_all_27_draws() {
        // The mean of 3 draws from {0, 3, 9}, with all 27 equally likely draws computed by hand. P(mean = 0) = P(mean =
        // 9) = 1/27 = 3.7 %, more than 2.5 %, so the exact interval is the whole range.
        let estimate = Bootstrap::default().estimate(3, mean_of(&[0.0, 3.0, 9.0])).unwrap();
        assert_eq!(estimate.value, 4.0);
        assert_eq!(estimate.interval, Some(Interval { low: 0.0, high: 9.0 }));
    }

    #[test]
    fn the_interval_of_many_runs_is_that_of_the_normal_law() {
        // The values 1 to 100: standard error of the mean is sqrt((100^2 - 1) / 12 / 100) = 2.8866, times 1.96 = 5.66.
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let interval =
            Bootstrap::default().estimate(100, mean_of(&values)).unwrap().interval.unwrap();
        assert!(
            (interval.low - (50.5 - 5.66)).abs() < 0.5
                && (interval.high - (50.5 + 5.66)).abs() < 0.5,
            "{interval:?}"
        );
    }

    #[test]
    fn one_seed_gives_one_interval_and_one_run_none() {
        let values = [1.0, 5.0, 2.0, 8.0, 4.0, 9.0];
        let once = Bootstrap { resamples: 50, seed: 7 }.estimate(6, mean_of(&values));
        assert_eq!(once, Bootstrap { resamples: 50, seed: 7 }.estimate(6, mean_of(&values)));
        assert_ne!(once, Bootstrap { resamples: 50, seed: 8 }.estimate(6, mean_of(&values)));
        assert_eq!(Bootstrap::default().estimate(1, mean_of(&[3.0])).unwrap().interval, None);
        assert_eq!(Bootstrap::default().estimate(4, |_| None), None);
    }
}
