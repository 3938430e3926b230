//! The hop behind the egress: the socket of a receiver on this host.

use crate::Path;
use ledger::{Accounting, Amount, Event, HopBuilder, HopKind, HopSnapshot, Reason};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Drops at the receivers of one target. Accessed by the control thread and by readers of the ledger.
#[derive(Default)]
pub(super) struct ReceiverCount(Mutex<Count>);

#[derive(Default)]
struct Count {
    path: Option<Path>,
    /// At the receivers of earlier paths.
    dropped_before: Option<u64>,
}

impl Count {
    fn dropped(&self) -> Option<u64> {
        let now = self.path.as_ref().and_then(Path::receiver_dropped);
        match (self.dropped_before, now) {
            (None, None) => None,
            (before, now) => Some(before.unwrap_or(0) + now.unwrap_or(0)),
        }
    }
}

impl ReceiverCount {
    /// Records the target's new path. `None` when it does not send to a UDP address.
    pub(super) fn follow(&self, path: Option<Path>) {
        let mut count = self.lock();
        count.dropped_before = count.dropped();
        count.path = path;
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hop. `handed` is what was handed over and not returned. `None` when no receiver was ever seen.
    pub(super) fn hop(&self, listener: &str, target: &str, handed: Amount) -> Option<HopSnapshot> {
        let dropped = self.lock().dropped()?;
        // If others send to the socket too, it may drop more than was ours.
        let lost = Amount { count: dropped.min(handed.count), bytes: 0 };
        let hop = HopBuilder::new(HopKind::Receiver, listener, Some(target), Amount::default())
            .delivered(handed.saturating_sub(lost))
            .dropped(Reason::ReceiverBuffer, lost)
            .accounting(Accounting::AllSenders)
            .event(Event::SocketDrops, dropped);
        Some(hop.finish(handed))
    }
}
