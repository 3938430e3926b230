//! How much traffic samples stand for, and how certain that is.
//!
//! A figure is a sum over samples, each with the number of frames that it stands for (its scale). Its relative variance is `1 /
//! effective samples - 1 / all samples`. The first term is the second moment of the summed values (Horvitz and Thompson). The
//! second subtracts what does not vary because the scale comes from the pool itself (a ratio estimate), so a flow that makes up
//! all traffic is known exactly. The interval is Wilson's, which is valid for few samples too and never goes below zero.

/// The 95 % quantile of the normal distribution, two-sided.
const Z: f64 = 1.959_963_985;

/// Sums over samples, each with a weight: 1, or less with age.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sums {
    /// Sum of what each sample stands for.
    pub value: f64,
    /// Sum of its square.
    pub square: f64,
}

impl Sums {
    /// Adds a sample that stands for `value`, with weight `weight`.
    pub fn add(&mut self, value: f64, weight: f64) {
        let weighted = value * weight;
        self.value += weighted;
        self.square += weighted * weighted;
    }

    /// Adds the samples of another sum.
    pub fn join(&mut self, other: &Sums) {
        self.value += other.value;
        self.square += other.square;
    }

    /// Multiplies all weights by `factor`.
    pub fn scale(&mut self, factor: f64) {
        self.value *= factor;
        self.square *= factor * factor;
    }

    /// Number of samples of equal value that would be equally certain.
    pub fn effective_samples(&self) -> f64 {
        if self.square > 0.0 { self.value * self.value / self.square } else { 0.0 }
    }
}

/// A figure with its 95 % interval, in the unit of what was summed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The unbiased value.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Estimate {
    /// Exactly nothing.
    pub const ZERO: Estimate = Estimate { value: 0.0, low: 0.0, high: 0.0 };

    /// The figure of a part of the traffic.
    ///
    /// `all_samples` is the number of effective samples of all traffic of the same samplers, as far as its sum is known from the
    /// pool; infinite if it is not. `sampled` is the share of frames that were sampled and whose samples arrived (1 in 1000:
    /// 0.001); with 1, everything was seen and nothing is uncertain.
    pub fn of(part: &Sums, all_samples: f64, sampled: f64) -> Estimate {
        let value = part.value;
        let samples = part.effective_samples();
        if samples <= 0.0 {
            return Estimate::ZERO;
        }

        let (low, high) = wilson(samples, 1.0 / all_samples.max(samples));
        let unsure = (1.0 - sampled.clamp(0.0, 1.0)).sqrt();
        Estimate {
            value,
            low: value - value * (1.0 - low / samples) * unsure,
            high: value + value * (high / samples - 1.0) * unsure,
        }
    }

    /// The same in another unit.
    pub fn times(self, factor: f64) -> Estimate {
        let Estimate { value, low, high } = self;
        Estimate { value: value * factor, low: low * factor, high: high * factor }
    }

    /// Half of the interval's width as a share of the value. 0 if there is nothing.
    pub fn relative_error(&self) -> f64 {
        if self.value > 0.0 { (self.high - self.low) / 2.0 / self.value } else { 0.0 }
    }
}

/// Wilson's score interval for a number of samples out of `1 / each` in total (E. B. Wilson, 1927). With `each` = 0 it is the
/// score interval of a Poisson number.
fn wilson(samples: f64, each: f64) -> (f64, f64) {
    let squared = Z * Z;
    let center = samples + squared / 2.0;
    let variance = samples * (1.0 - samples * each).max(0.0) + squared / 4.0;
    let half = Z * variance.sqrt();
    let width = 1.0 + squared * each;
    (((center - half) / width).max(0.0), (center + half) / width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(samples: u64, each: f64) -> Sums {
        let mut sums = Sums::default();
        (0..samples).for_each(|_| sums.add(each, 1.0));
        sums
    }

    /// The example from sflow.org's "packet sampling basics": 1,000 of 2,500 samples of 1,000,000 frames are 400,000, between
    /// 381,000 and 419,000.
    #[test]
    fn the_published_example() {
        let estimate = Estimate::of(&sums(1_000, 400.0), 2_500.0, 1.0 / 400.0);
        assert_eq!(estimate.value, 400_000.0);
        assert!((estimate.low - 381_000.0).abs() < 500.0, "{estimate:?}");
        assert!((estimate.high - 419_000.0).abs() < 500.0, "{estimate:?}");
    }

    #[test]
    fn all_of_the_traffic_is_known() {
        let all = sums(100, 10.0);
        let estimate = Estimate::of(&all, 100.0, 0.1);
        assert_eq!((estimate.value, estimate.high), (1_000.0, 1_000.0));
        let everything_sampled = Estimate::of(&sums(5, 1.0), 50.0, 1.0);
        assert_eq!((everything_sampled.low, everything_sampled.high), (5.0, 5.0));
    }

    #[test]
    fn a_single_sample_says_little_and_nothing_negative() {
        let estimate = Estimate::of(&sums(1, 1_000.0), f64::INFINITY, 0.001);
        // The exact Poisson interval: from 0.025 to 5.57 times as much.
        assert!(estimate.low > 0.0 && estimate.low < 300.0, "{estimate:?}");
        assert!(estimate.high > 5_000.0 && estimate.high < 6_500.0, "{estimate:?}");
        assert_eq!(Estimate::of(&Sums::default(), 10.0, 0.1), Estimate::ZERO);
    }

    #[test]
    fn unequal_sizes_are_less_sure_than_equal_ones() {
        let mut mixed = sums(50, 64.0);
        (0..50).for_each(|_| mixed.add(1_500.0, 1.0));
        let all = 100_000.0;
        let mixed = Estimate::of(&mixed, all, 0.001).relative_error();
        let equal = Estimate::of(&sums(100, 782.0), all, 0.001).relative_error();
        assert!(mixed > equal * 1.3, "{mixed} against {equal}");
    }
}
