//! Acknowledgments of destinations on this host: when the system has the rows, or when the disk has them.

use std::thread;
use std::time::{Duration, Instant};

/// Shortest time between two syncs, unless every batch that may be in flight waits for one.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// When a destination on this host acknowledges rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When the system has them: a crash of the host loses what the system has not written to the disk yet.
    #[default]
    Written,
    /// When they are on the disk. For a sink with a spool, which lets go of rows that are acknowledged: they would otherwise be
    /// neither here nor there after a crash of the host.
    Synced {
        /// Most batches in flight: when as many wait for a sync, nothing more comes before it.
        batches_max: usize,
    },
}

/// Whether a sync is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Now,
    Later,
}

/// The time of the next sync. It is due a second after the one before, so that a slow stream costs one a second, and a batch
/// after a pause is acknowledged at once.
pub(crate) struct SyncTimer {
    durability: Durability,
    /// Batches written since the last sync.
    batches: usize,
    synced_at: Option<Instant>,
}

impl SyncTimer {
    pub(crate) fn new(durability: Durability) -> SyncTimer {
        SyncTimer { durability, batches: 0, synced_at: None }
    }

    /// Whether acknowledgments wait for a sync.
    pub(crate) fn is_used(&self) -> bool {
        self.durability != Durability::Written
    }

    /// Whether nothing waits for a sync.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_used() || self.batches == 0
    }

    /// Notes a batch that was written.
    pub(crate) fn wrote(&mut self) {
        self.batches += 1;
    }

    /// Time until a sync is due; `None` if nothing waits for one.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        match self.durability {
            Durability::Synced { .. } if self.batches == 0 => None,
            Durability::Synced { batches_max } if self.batches < batches_max => {
                let at = self.synced_at.map_or(now, |at| at + SYNC_INTERVAL);
                Some(at.saturating_duration_since(now))
            }
            Durability::Synced { .. } => Some(Duration::ZERO),
            Durability::Written => None,
        }
    }

    /// Waits for the next sync, for at most `wait`, if there is something to sync.
    pub(crate) fn wait(&self, wait: Duration) -> Due {
        match self.due_in(Instant::now()) {
            None => Due::Later,
            Some(due) => {
                thread::sleep(due.min(wait));
                if due <= wait { Due::Now } else { Due::Later }
            }
        }
    }

    /// Notes a sync, whether it succeeded or not.
    pub(crate) fn synced(&mut self, now: Instant) {
        (self.batches, self.synced_at) = (0, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_due_at_once_then_a_second_later_or_when_no_more_batches_may_wait() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut timer = SyncTimer::new(Durability::Synced { batches_max: 3 });
        assert_eq!(timer.due_in(begun), None);
        timer.wrote();
        assert_eq!(timer.due_in(begun), Some(Duration::ZERO));
        timer.synced(begun);
        assert_eq!(timer.due_in(begun), None);
        timer.wrote();
        assert_eq!(timer.due_in(at(400)), Some(Duration::from_millis(600)));
        timer.wrote();
        assert_eq!(timer.due_in(at(1_000)), Some(Duration::ZERO));
        timer.wrote();
        assert_eq!(timer.due_in(at(400)), Some(Duration::ZERO));

        let mut timer = SyncTimer::new(Durability::Written);
        timer.wrote();
        assert_eq!(timer.due_in(begun), None);
    }
}
