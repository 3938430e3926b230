//! The round trip's time, as RFC 6298 estimates it, from reports that say how long they waited.

/// What is assumed before anything was measured, in nanoseconds.
const UNKNOWN_NS: u64 = 100_000_000;

/// Smallest variation that is believed, in nanoseconds: timers and schedulers have as much.
const VARIATION_MIN_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    smoothed_ns: Option<u64>,
    variation_ns: u64,
    min_ns: u64,
}

impl RoundTrip {
    pub(super) fn unknown() -> RoundTrip {
        RoundTrip { smoothed_ns: None, variation_ns: 0, min_ns: u64::MAX }
    }

    pub(super) fn note(&mut self, sample_ns: u64) {
        self.min_ns = self.min_ns.min(sample_ns);
        match self.smoothed_ns {
            None => (self.smoothed_ns, self.variation_ns) = (Some(sample_ns), sample_ns / 2),
            Some(smoothed_ns) => {
                let off_ns = smoothed_ns.abs_diff(sample_ns);
                self.variation_ns = (self.variation_ns * 3 + off_ns) / 4;
                self.smoothed_ns = Some((smoothed_ns * 7 + sample_ns) / 8);
            }
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.smoothed_ns.is_some()
    }

    pub(super) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns.unwrap_or(UNKNOWN_NS)
    }

    /// Longest time after which an answer is still likely, but for the time that the other end waits with it.
    pub(super) fn patience_ns(&self) -> u64 {
        self.smoothed_ns() + (4 * self.variation_ns).max(VARIATION_MIN_NS)
    }
}
