use serde::Serialize;

/// Most intervals to keep; when they are full, adjacent ones are merged and the interval doubles.
const INTERVALS_MAX: usize = 128;

/// Datagrams over time, in at most 128 equal intervals, whatever the length of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// Length of one interval in nanoseconds.
    pub interval_ns: u64,
    /// Datagrams in each interval since the first datagram.
    pub datagrams: Vec<u64>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { interval_ns: 100_000_000, datagrams: Vec::new() }
    }
}

impl Timeline {
    /// Adds datagrams that arrived this long after the first one.
    pub(crate) fn add(&mut self, age_ns: u64, datagrams: u64) {
        while age_ns / self.interval_ns >= INTERVALS_MAX as u64 {
            self.datagrams = self.datagrams.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.interval_ns *= 2;
        }
        let idx = (age_ns / self.interval_ns) as usize;
        if self.datagrams.len() <= idx {
            self.datagrams.resize(idx + 1, 0);
        }
        self.datagrams[idx] += datagrams;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_survives_folding() {
        let mut timeline = Timeline::default();
        for second in 0..1_000 {
            timeline.add(second * 1_000_000_000, 3);
        }
        assert_eq!(timeline.datagrams.iter().sum::<u64>(), 3_000);
        assert!(timeline.datagrams.len() <= INTERVALS_MAX);
    }
}
