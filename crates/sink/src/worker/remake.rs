//! When the destination or the form may be made again, after it could not be made or has panicked.

use std::time::{Duration, Instant};

/// The first pause and the longest; each is twice the one before.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(60)];

/// The pauses between attempts at making one thing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remake {
    /// No attempt before then.
    pub(super) at: Option<Instant>,
    failures: u32,
}

impl Remake {
    pub(super) fn may(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now >= at)
    }

    /// It failed once more. Returns when it may be tried again.
    pub(super) fn failed(&mut self, now: Instant) -> Instant {
        let [first, longest] = PAUSES;
        let pause = first.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        *self.at.insert(now + pause)
    }
}
