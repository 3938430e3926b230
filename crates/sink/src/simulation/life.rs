//! One life of a sink, and its ledger.

use crate::accounts::Accounts;
use crate::delivery::Now;
use crate::spool::tests::fake::FakeDisk;
use crate::worker::Worker;
use ledger::{Amount, HopSnapshot, Meter};
use std::sync::Arc;

pub(super) type Clock = Box<dyn Fn() -> Now>;

/// One life of the sink.
pub(super) struct Life {
    pub(super) worker: Worker<Clock, FakeDisk>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) idle_turns: u32,
    pub(super) moved: (u64, u64, Amount),
    pub(super) turns: u64,
    pub(super) expired_before: u64,
}

pub(super) fn is_empty(life: &Life) -> bool {
    let Life { accounts, .. } = life;
    accounts.received() == accounts.counters.left() + accounts.queue.counters.left()
}

pub(super) fn check_law(life: &Life, offered: Amount) {
    let hop = hop(&life.accounts);
    assert_eq!((hop.unaccounted, hop.violations), (0, 0), "{hop:?}");
    assert_eq!(hop.received, hop.left() + hop.in_flight, "{hop:?}");
    assert_eq!(hop.received, offered + life.accounts.recovered.load(), "{hop:?}");
}

pub(super) fn hop(accounts: &Accounts) -> HopSnapshot {
    let mut hops = Vec::new();
    accounts.read(&mut hops);
    hops.remove(0)
}
