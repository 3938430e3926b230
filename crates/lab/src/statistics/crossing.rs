use super::bootstrap::{Bootstrap, Interval, draw, middle};
use super::pool::Figure;
use load::Random;
use serde::Serialize;

/// A quotient of sums over runs: per run the numerator and the denominator, for example the delays' sum and their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ratio(pub Vec<(f64, f64)>);

impl Ratio {
    /// One for each run, over one: the mean of `values` over runs.
    pub fn mean_of(values: impl IntoIterator<Item = f64>) -> Ratio {
        Ratio(values.into_iter().map(|value| (value, 1.0)).collect())
    }

    /// A value that is the same in every run.
    pub fn level(value: f64) -> Ratio {
        Ratio(vec![(value, 1.0); 2])
    }

    /// The quotient with each run counted so often; `None` where it is not a number.
    pub(super) fn figure(&self, weights: &[u32]) -> Option<Figure> {
        let value = self.weighted(weights);
        value.is_finite().then_some(Figure { value, at_least: false })
    }

    fn weighted(&self, weights: &[u32]) -> f64 {
        let sum = |of: fn(&(f64, f64)) -> f64| {
            self.0
                .iter()
                .zip(weights)
                .map(|(run, &weight)| of(run) * f64::from(weight))
                .sum::<f64>()
        };
        sum(|run| run.0) / sum(|run| run.1)
    }

    fn drawn(&self, random: &mut Random) -> f64 {
        self.weighted(&draw(self.0.len(), random))
    }

    /// The quotient with each run counted once.
    pub fn value(&self) -> f64 {
        self.weighted(&vec![1; self.0.len()])
    }
}

/// Where one curve falls below another for good.
///
/// An infinite value lies outside what was measured: +∞ beyond the last point (it does not fall below), -∞ before the
/// first (it is below from the start).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Crossing {
    pub at: f64,
    /// Both ends may be infinite. `None` when some point has fewer than two runs.
    pub interval: Option<Interval>,
}

/// Where `upper` falls below `lower` and stays there, over `points` of (x, upper, lower) with x ascending: on the straight
/// line between the last point at which `upper` is not below and the next. The interval draws the runs of every point of
/// both curves anew. `None` with fewer than two points, or where some quotient is not a number.
pub fn crossing(points: &[(f64, Ratio, Ratio)], bootstrap: Bootstrap) -> Option<Crossing> {
    if points.len() < 2 {
        return None;
    }
    let gaps: Vec<(f64, f64)> =
        points.iter().map(|(x, a, b)| (*x, a.value() - b.value())).collect();
    let at = last_fall(&gaps)?;
    let repeated = points.iter().all(|(_, a, b)| a.0.len() > 1 && b.0.len() > 1);
    let interval = repeated.then(|| resampled(points, bootstrap)).flatten();
    Some(Crossing { at, interval })
}

fn resampled(points: &[(f64, Ratio, Ratio)], bootstrap: Bootstrap) -> Option<Interval> {
    let mut random = Random::seeded(bootstrap.seed);
    let falls = (0..bootstrap.resamples).filter_map(|_| {
        let gap = |(x, a, b): &(f64, Ratio, Ratio), random: &mut Random| {
            (*x, a.drawn(random) - b.drawn(random))
        };
        last_fall(&points.iter().map(|point| gap(point, &mut random)).collect::<Vec<_>>())
    });
    middle(falls.collect())
}

fn last_fall(gaps: &[(f64, f64)]) -> Option<f64> {
    if gaps.iter().any(|(_, gap)| gap.is_nan()) {
        return None;
    }
    let Some(last) = gaps.iter().rposition(|&(_, gap)| gap >= 0.0) else {
        return Some(f64::NEG_INFINITY);
    };
    let (x, gap) = gaps[last];
    let Some(&(next_x, next_gap)) = gaps.get(last + 1) else { return Some(f64::INFINITY) };
    Some(x + (next_x - x) * gap / (gap - next_gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fall(upper: &[f64], lower: &[f64]) -> f64 {
        let one = |value: f64| Ratio::mean_of([value]);
        let points: Vec<_> = upper
            .iter()
            .zip(lower)
            .enumerate()
            .map(|(x, (&a, &b))| (x as f64, one(a), one(b)))
            .collect();
        crossing(&points, Bootstrap::default()).unwrap().at
    }

    #[test]
    fn curves_cross_on_the_line_between_points() {
        assert_eq!(fall(&[4.0, 1.0], &[3.0, 2.0]), 0.5);
        assert_eq!(fall(&[4.0, 3.0, 0.0], &[3.0, 2.0, 1.0]), 1.5);
        assert_eq!(fall(&[4.0, 2.0, 0.0], &[3.0, 2.0, 1.0]), 1.0);
    }

    #[test]
    fn an_early_touch_is_not_the_crossing() {
        assert_eq!(fall(&[1.0, 1.0, 1.0, 0.0], &[1.1, 0.0, 0.5, 0.5]), 2.5);
    }

    #[test]
    fn no_crossing_lies_outside() {
        assert_eq!(fall(&[4.0, 4.0], &[3.0, 2.0]), f64::INFINITY);
        assert_eq!(fall(&[1.0, 1.0], &[3.0, 2.0]), f64::NEG_INFINITY);
        assert_eq!(crossing(&[], Bootstrap::default()), None);
        let none = Ratio(vec![(0.0, 0.0)]);
        let points = [(0.0, none.clone(), none.clone()), (1.0, none.clone(), none)];
        assert_eq!(crossing(&points, Bootstrap::default()), None);
    }

    #[test]
    fn the_interval_follows_the_runs() {
        // At x = 0 the gap is 1; at x = 1 it is -1 or -3 by the run, so the crossing lies between 1/4 and 1/2.
        let level = Ratio::level(1.0);
        let points = [
            (0.0, Ratio::mean_of([2.0, 2.0]), level.clone()),
            (1.0, Ratio::mean_of([0.0, -2.0]), level.clone()),
        ];
        let found = crossing(&points, Bootstrap::default()).unwrap();
        assert_eq!(
            (found.at, found.interval),
            (1.0 / 3.0, Some(Interval { low: 0.25, high: 0.5 }))
        );
        let single = [points[0].clone(), (1.0, Ratio::mean_of([0.0]), level)];
        assert_eq!(crossing(&single, Bootstrap::default()).unwrap().interval, None);
    }
}
