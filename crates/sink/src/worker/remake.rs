//! When to retry creating the destination or the form, after creating it failed or it panicked.

use std::time::{Duration, Instant};

/// The first and the longest pause; each is twice the one before.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(60)];

/// The pauses between attempts to create something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remake {
    /// No attempt before this time.
    pub(super) at: Option<Instant>,
    failures: u32,
}

impl Remake {
    pub(super) fn may(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now >= at)
    }

    /// Notes another failure. Returns when to try again.
    pub(super) fn failed(&mut self, now: Instant) -> Instant {
        let [first, longest] = PAUSES;
        let pause = first.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        *self.at.insert(now + pause)
    }
}
