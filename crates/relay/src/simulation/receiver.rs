//! A simulated receiver of rows: it takes, is slow, runs out of room for a while, signals readiness at random, and panics.

use super::{Random, payload, source_of};
use crate::{Datagram, Flushed, RowTarget, Taken};
use ledger::{Amount, HopKind, Reason, Snapshot};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use sys::poll::EventFd;

/// What the receivers of one target got, over all of them.
#[derive(Default)]
pub(super) struct Shelf {
    /// Datagrams taken, in order.
    pub(super) taken: Vec<Vec<u8>>,
    /// Datagrams on which they panicked.
    pub(super) panicked: Amount,
    /// How often they had no room.
    pub(super) refusals: u64,
    /// Current receivers, and what those that left during the calm had taken but not passed on.
    receivers: u64,
    left_open: u64,
    /// No more faults: the end of the run.
    pub(super) is_calm: bool,
}

impl Shelf {
    /// Compares the ledger's counts for the target with what was taken.
    pub(super) fn check(&self, name: &str, snapshot: &Snapshot) {
        let hop = |kind| snapshot.hop(kind, "l", Some(name)).unwrap();
        let (target, egress) = (hop(HopKind::Target), hop(HopKind::Egress));
        let bytes = self.taken.iter().map(Vec::len).sum::<usize>() as u64;
        let taken = Amount { count: self.taken.len() as u64, bytes };
        assert_eq!((target.delivered, egress.delivered), (taken, taken), "{name}");
        assert_eq!(target.dropped_for(Reason::SinkPanicked), self.panicked, "{name}");
        assert_eq!(target.received, target.delivered + target.dropped_total(), "{name}");
        assert_eq!(self.receivers, 0, "{name}");
        assert_eq!(self.left_open, 0, "{name}");
    }
}

pub(super) struct FakeReceiver {
    random: Random,
    clock: Arc<AtomicU64>,
    shelf: Arc<Mutex<Shelf>>,
    /// Taken and not passed on yet.
    open: u64,
    full_until_ns: u64,
    ready: EventFd,
    looks: Cell<u64>,
    /// One in this many calls panics.
    panics_one_in: u64,
}

impl FakeReceiver {
    pub(super) fn new(
        mut random: Random,
        clock: Arc<AtomicU64>,
        shelf: Arc<Mutex<Shelf>>,
    ) -> FakeReceiver {
        shelf.lock().unwrap().receivers += 1;
        let panics_one_in = 10 << random.below(5);
        FakeReceiver {
            random,
            clock,
            shelf,
            open: 0,
            full_until_ns: 0,
            ready: EventFd::new().unwrap(),
            looks: Cell::new(0),
            panics_one_in,
        }
    }

    /// Whether there is no room now.
    fn is_full(&mut self) -> bool {
        let now_ns = self.clock.load(Ordering::Relaxed);
        if self.random.one_in(16) {
            self.full_until_ns = now_ns + self.random.below(500_000_000);
        }
        // It signals readiness wrongly, in both directions.
        match self.random.below(8) {
            0 => self.ready.wake(),
            1 => self.ready.clear(),
            _ => {}
        }
        now_ns < self.full_until_ns
    }
}

impl RowTarget for FakeReceiver {
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken {
        check_known(datagram, self.clock.load(Ordering::Relaxed));
        let shelf = Arc::clone(&self.shelf);
        let mut shelf = shelf.lock().unwrap();

        if !shelf.is_calm {
            let slow_ns = if self.random.one_in(32) { 300_000_000 } else { 1_000 };
            self.clock.fetch_add(self.random.below(slow_ns), Ordering::Relaxed);
            if self.is_full() {
                shelf.refusals += 1;
                return Taken::Full;
            }
            if self.random.one_in(self.panics_one_in) {
                shelf.panicked += Amount::one(datagram.bytes.len());
                drop(shelf);
                // Without the hook, which would write a line for each.
                resume_unwind(Box::new("planned"));
            }
        }

        shelf.taken.push(datagram.bytes.to_vec());
        self.open += 1;
        Taken::Yes
    }

    fn flush(&mut self) -> Flushed {
        let shelf = Arc::clone(&self.shelf);
        let shelf = shelf.lock().unwrap();
        assert!(self.open > 0, "nothing to hand on");
        if !shelf.is_calm && self.is_full() {
            return Flushed::Full;
        }

        self.open = 0;
        if !shelf.is_calm && self.random.one_in(self.panics_one_in) {
            drop(shelf);
            resume_unwind(Box::new("planned"));
        }
        Flushed::Yes
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        self.looks.set(self.looks.get() + 1);
        (!self.looks.get().is_multiple_of(5)).then(|| self.ready.as_fd())
    }
}

impl Drop for FakeReceiver {
    fn drop(&mut self) {
        let mut shelf = self.shelf.lock().unwrap();
        shelf.receivers -= 1;
        shelf.left_open += if shelf.is_calm { self.open } else { 0 };
    }
}

/// Checks that each datagram comes with the source that sent it, at or after the time when it arrived.
fn check_known(datagram: &Datagram<'_>, now_ns: u64) {
    assert!(datagram.arrived_ns <= now_ns);
    if let Some(first) = datagram.bytes.first_chunk() {
        // The inverse of the odd factor in `payload`, modulo 2^64.
        let number = u64::from_le_bytes(*first).wrapping_mul(0xf1de_83e1_9937_733d);
        assert_eq!(payload(number, datagram.bytes.len()), datagram.bytes);
        assert_eq!(datagram.source.address().unwrap().ip(), source_of(number));
    }
}
