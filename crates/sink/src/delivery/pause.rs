//! Random pauses before retries.

use std::time::Duration;

/// Upper bound of the first pause.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// Small random numbers (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>): for pauses, not for secrets.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random pause after this number of failures in a row.
    pub(super) fn pause(&mut self, failures: u32, max: Duration) -> Duration {
        let doubled = RETRY_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let bound_us = doubled.min(max).as_micros() as u64;
        Duration::from_micros(self.next() % bound_us.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_anything_up_to_a_bound_that_doubles() {
        let max = Duration::from_secs(5);
        let mut random = Random(1);
        for (failures, bound_ms) in
            [(1, 100), (2, 200), (3, 400), (6, 3_200), (7, 5_000), (u32::MAX, 5_000)]
        {
            let pauses: Vec<_> = (0..2_000).map(|_| random.pause(failures, max)).collect();
            let bound = Duration::from_millis(bound_ms);
            assert!(pauses.iter().all(|pause| *pause < bound), "{failures}");
            // Full jitter: the pauses are uniform over the whole range.
            for quarter in 0..4 {
                let range = bound * quarter / 4..bound * (quarter + 1) / 4;
                let hits = pauses.iter().filter(|pause| range.contains(*pause)).count();
                assert!(
                    (400..600).contains(&hits),
                    "{hits} of 2,000 in quarter {quarter} of {bound:?}"
                );
            }
        }
    }
}
