//! The sockets of a listener that has several, as parts of its hops.

use super::ListenerMeter;
use crate::ring::Reader;
use ledger::{
    Accounting, Amount, Counters, Event, Gauge, HopBuilder, HopKind, HopSnapshot, Reason, Tally,
};
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What the kernel dropped at sockets, in datagrams, and what it holds now.
#[derive(Clone, Copy, Default)]
pub(super) struct Kernel {
    pub(super) dropped: u64,
    /// Dropped because the socket had begun to refuse datagrams.
    pub(super) dropped_at_stop: u64,
    /// Dropped before counting began.
    pub(super) dropped_before: u64,
    pub(super) receive_buffer_bytes: u64,
    pub(super) receive_queued_bytes: u64,
    /// Whether there may have been more drops.
    pub(super) is_at_least: bool,
}

impl Kernel {
    pub(super) fn lost(&self) -> Amount {
        Amount { count: self.dropped + self.dropped_at_stop, bytes: 0 }
    }

    /// The counts without what the kernel holds now.
    pub(super) fn counts(self) -> Kernel {
        Kernel { receive_buffer_bytes: 0, receive_queued_bytes: 0, ..self }
    }

    pub(super) fn add_to(&self, hop: HopBuilder) -> HopBuilder {
        let lost = |count| Amount { count, bytes: 0 };
        let accounting = if self.is_at_least { Accounting::AtLeast } else { Accounting::Exact };
        hop.accounting(accounting)
            .dropped(Reason::SocketBuffer, lost(self.dropped))
            .dropped(Reason::Shutdown, lost(self.dropped_at_stop))
            .event(Event::DroppedBeforeStart, self.dropped_before)
            .gauge(Gauge::ReceiveBufferBytes, self.receive_buffer_bytes)
            .gauge(Gauge::ReceiveQueueBytes, self.receive_queued_bytes)
    }
}

impl Add for Kernel {
    type Output = Kernel;

    fn add(self, other: Kernel) -> Kernel {
        Kernel {
            dropped: self.dropped + other.dropped,
            dropped_at_stop: self.dropped_at_stop + other.dropped_at_stop,
            dropped_before: self.dropped_before + other.dropped_before,
            receive_buffer_bytes: self.receive_buffer_bytes + other.receive_buffer_bytes,
            receive_queued_bytes: self.receive_queued_bytes + other.receive_queued_bytes,
            is_at_least: self.is_at_least || other.is_at_least,
        }
    }
}

/// Counters of one of several sockets.
pub(crate) struct MemberMeter {
    /// Its index among the listener's sockets, from 0.
    place: String,
    /// Written by the thread that reads the socket.
    pub(crate) own: Arc<ListenerMeter>,
    /// Written by the merging thread: taken, and dropped from the ring.
    pub(crate) merged: Counters,
    /// Written by the thread that reads the socket: what it took from the ring because that was full.
    pub(crate) lost: Arc<Tally>,
    capacity: u64,
    mismatch: AtomicI64,
}

impl MemberMeter {
    /// `capacity` is the maximum that its ring can hold.
    pub(crate) fn new(place: usize, own: Arc<ListenerMeter>, capacity: u64) -> MemberMeter {
        let own_in_hand = own.in_hand_max;
        MemberMeter {
            place: place.to_string(),
            own,
            merged: Counters::default(),
            lost: Arc::default(),
            // As for a target: the writer may reuse what a reader dropped before it has counted taking it.
            capacity: capacity + capacity / 4 + 2 * own_in_hand,
            mismatch: AtomicI64::new(0),
        }
    }

    /// Compares the counts with the ring's own number. Called by the merging thread between two passes.
    pub(crate) fn check_law(&self, reader: &Reader) {
        let Some((cursor, lost)) = reader.account(|| self.lost.load()) else { return };
        let dropped: Amount = self.merged.drops().map(|(_, amount)| amount).sum();
        let counted = self.merged.delivered.load() + dropped + lost;
        self.mismatch.store(cursor.wrapping_sub(counted.count) as i64, Ordering::Relaxed);
    }

    fn drops(&self) -> impl Iterator<Item = (Reason, Amount)> {
        let lost = std::iter::once((Reason::QueueFull, self.lost.load()));
        // The merging thread's counts first: they are downstream.
        self.merged.drops().chain(lost).chain(self.own.receive.drops())
    }

    fn hop(&self, listener: &str) -> HopSnapshot {
        let mismatch = self.mismatch.load(Ordering::Relaxed);
        let mismatch = mismatch + self.own.mismatch.load(Ordering::Relaxed);
        let before = self.own.read.load();
        let mut hop = HopBuilder::new(HopKind::Member, listener, Some(&self.place), before)
            .delivered(self.merged.delivered.load())
            .capacity(self.capacity)
            .mismatch(mismatch)
            .event(Event::Batches, self.own.batches.load());
        for (reason, amount) in self.drops() {
            hop = hop.dropped(reason, amount);
        }
        let kernel = self.own.kernel();
        kernel.add_to(hop).finish(self.own.read.load() + kernel.lost())
    }
}

/// All current members, and the counts of those that are gone.
#[derive(Default)]
pub(super) struct Members {
    now: Vec<Arc<MemberMeter>>,
    gone: Gone,
}

#[derive(Default)]
struct Gone {
    read: Amount,
    kernel: Kernel,
    drops: Vec<(Reason, Amount)>,
    calls: Calls,
}

/// Counts of reading sockets that are not part of the law.
#[derive(Clone, Copy, Default)]
pub(super) struct Calls {
    pub(super) batches: u64,
    pub(super) empty_datagrams: u64,
    pub(super) receive_errors: u64,
}

impl Calls {
    pub(super) fn of(meter: &ListenerMeter) -> Calls {
        Calls {
            batches: meter.batches.load(),
            empty_datagrams: meter.empty_datagrams.load(),
            receive_errors: meter.receive_errors.load(),
        }
    }
}

impl Add for Calls {
    type Output = Calls;

    fn add(self, other: Calls) -> Calls {
        Calls {
            batches: self.batches + other.batches,
            empty_datagrams: self.empty_datagrams + other.empty_datagrams,
            receive_errors: self.receive_errors + other.receive_errors,
        }
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").field("now", &self.now.len()).finish_non_exhaustive()
    }
}

impl Members {
    pub(super) fn add(&mut self, member: Arc<MemberMeter>) {
        self.now.push(member);
    }

    pub(super) fn fold(&mut self, member: &Arc<MemberMeter>) {
        let Some(at) = self.now.iter().position(|one| Arc::ptr_eq(one, member)) else { return };
        let member = self.now.remove(at);
        member.own.finish_stop();

        let kernel = member.own.kernel().counts();
        self.gone.kernel = self.gone.kernel + Kernel { dropped_before: 0, ..kernel };
        self.gone.read += member.own.read.load();
        self.gone.calls = self.gone.calls + Calls::of(&member.own);
        for (reason, amount) in member.drops() {
            match self.gone.drops.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum += amount,
                None => self.gone.drops.push((reason, amount)),
            }
        }
    }

    pub(super) fn fold_all(&mut self) {
        while let Some(member) = self.now.last().map(Arc::clone) {
            self.fold(&member);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    pub(super) fn read(&self) -> Amount {
        self.gone.read + self.now.iter().map(|member| member.own.read.load()).sum()
    }

    pub(super) fn kernel(&self) -> Kernel {
        // Drops from before a member counted are in the listener's account.
        let of = |member: &Arc<MemberMeter>| Kernel { dropped_before: 0, ..member.own.kernel() };
        self.now.iter().map(of).fold(self.gone.kernel, Add::add)
    }

    /// What the members dropped between their sockets and the listener's ring.
    pub(super) fn drops(&self) -> impl Iterator<Item = (Reason, Amount)> {
        let gone = self.gone.drops.iter().copied();
        gone.chain(self.now.iter().flat_map(|member| member.drops()))
    }

    pub(super) fn capacity(&self) -> u64 {
        self.now.iter().map(|member| member.capacity + member.own.in_hand_max).sum()
    }

    pub(super) fn calls(&self) -> Calls {
        self.now.iter().map(|member| Calls::of(&member.own)).fold(self.gone.calls, Add::add)
    }

    pub(super) fn hops(&self, listener: &str) -> Vec<HopSnapshot> {
        self.now.iter().map(|member| member.hop(listener)).collect()
    }
}
