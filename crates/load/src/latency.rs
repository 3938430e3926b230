use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time recorded, in nanoseconds; longer ones count as this.
const TIME_MAX_NS: u64 = 100_000_000_000;

/// Times in nanoseconds, kept to three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// No samples yet.
    #[expect(
        clippy::new_without_default,
        reason = "it allocates half a megabyte, which one should see"
    )]
    pub fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, TIME_MAX_NS, 3);
        Latencies(histogram.expect("the bounds and the precision are constants in range"))
    }

    pub(crate) fn record(&mut self, time_ns: u64) {
        self.0.saturating_record(time_ns);
    }

    /// Adds the samples of another one.
    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all histograms here have the same bounds");
    }

    /// Quantiles and distribution of the samples.
    pub fn report(&self) -> LatencyReport {
        LatencyReport {
            samples: self.0.len(),
            min_ns: if self.0.is_empty() { 0 } else { self.0.min() },
            mean_ns: self.0.mean() as u64,
            p50_ns: self.0.value_at_quantile(0.5),
            p90_ns: self.0.value_at_quantile(0.9),
            p99_ns: self.0.value_at_quantile(0.99),
            p99_9_ns: self.0.value_at_quantile(0.999),
            p99_99_ns: self.0.value_at_quantile(0.999_9),
            max_ns: self.0.max(),
            distribution: self.distribution(),
        }
    }

    /// Counts between the edges 1, 2, 5, 10, ... microseconds; empty buckets at both ends are omitted.
    fn distribution(&self) -> Vec<Bucket> {
        let edges_ns = (3..11).flat_map(|exp| [1, 2, 5].map(|digit| digit * 10_u64.pow(exp)));
        let mut from_ns = 0;
        let mut buckets: Vec<Bucket> = edges_ns
            .map(|up_to_ns| {
                let samples = self.0.count_between(from_ns, up_to_ns - 1);
                from_ns = up_to_ns;
                Bucket { up_to_ns, samples }
            })
            .collect();

        let used = buckets.iter().rposition(|b| b.samples > 0).map_or(0, |last| last + 1);
        buckets.truncate(used);
        let first = buckets.iter().position(|b| b.samples > 0).unwrap_or(0);
        buckets.drain(..first);
        buckets
    }
}

/// Statistics of a duration over many samples. Values are exact to three significant digits; 0 without samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LatencyReport {
    pub samples: u64,
    pub min_ns: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
    pub p99_99_ns: u64,
    pub max_ns: u64,
    /// Samples by bucket, from the smallest in use to the largest.
    pub distribution: Vec<Bucket>,
}

/// Samples below `up_to_ns` that are not in an earlier bucket. The edges are 1, 2, 5, 10, ... microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    pub up_to_ns: u64,
    pub samples: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_one_bucket() {
        let mut latencies = Latencies::new();
        for time_ns in [0, 1, 999, 1_500, 40_000, 7_000_000_000] {
            latencies.record(time_ns);
        }
        let report = latencies.report();
        assert_eq!(report.samples, 6);
        assert_eq!(report.distribution.iter().map(|b| b.samples).sum::<u64>(), 6);
        assert_eq!(report.distribution[0], Bucket { up_to_ns: 1_000, samples: 3 });
        assert!(report.max_ns >= 7_000_000_000 && report.p50_ns < 2_000);
    }

    #[test]
    fn no_samples_is_all_zero() {
        let report = Latencies::new().report();
        assert_eq!((report.samples, report.min_ns, report.max_ns), (0, 0, 0));
        assert!(report.distribution.is_empty());
    }
}
