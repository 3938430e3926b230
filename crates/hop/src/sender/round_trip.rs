//! Round-trip time, estimated as in RFC 6298 from reports that say how long they waited.

/// Assumed before the first measurement, in nanoseconds.
const UNKNOWN_NS: u64 = 100_000_000;

/// Minimum variation assumed, in nanoseconds: timers and schedulers alone cause that much.
const VARIATION_MIN_NS: u64 = 1_000_000;

/// How long the shortest round trip is remembered at least, in nanoseconds. Paths change, and may get longer.
const SHORTEST_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    smoothed_ns: Option<u64>,
    variation_ns: u64,
    /// The shortest of this period and of the one before.
    shortest_ns: [u64; 2],
    since_ns: u64,
}

impl RoundTrip {
    pub(super) fn unknown() -> RoundTrip {
        RoundTrip { smoothed_ns: None, variation_ns: 0, shortest_ns: [u64::MAX; 2], since_ns: 0 }
    }

    pub(super) fn note(&mut self, now_ns: u64, sample_ns: u64) {
        if now_ns >= self.since_ns + SHORTEST_NS {
            (self.shortest_ns, self.since_ns) = ([u64::MAX, self.shortest_ns[0]], now_ns);
        }
        self.shortest_ns[0] = self.shortest_ns[0].min(sample_ns);
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

    /// The shortest recent round trip; 0 before the first measurement.
    pub(super) fn shortest_ns(&self) -> u64 {
        let [now_ns, before_ns] = self.shortest_ns;
        if self.is_known() { now_ns.min(before_ns) } else { 0 }
    }

    /// Longest time after which an answer is still likely, not counting the time that the other end holds it back.
    pub(super) fn patience_ns(&self) -> u64 {
        self.smoothed_ns() + (4 * self.variation_ns).max(VARIATION_MIN_NS)
    }
}
