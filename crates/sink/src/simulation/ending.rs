//! How a life of the sink ends: it is closed, the machine stops, it is abandoned, or everything
//! drains.

use super::faults::Fault;
use super::life::{Life, hop, is_empty};
use super::world::{MS, lock};
use super::{BASE, DRAIN, Run};
use crate::options::SpoolSync;
use crate::sink::end;
use crate::worker::Turn;
use ledger::{Amount, Reason};
use std::time::Duration;

impl Run {
    /// Closes the sink, runs it to the end, and checks the result. Returns what stays on disk.
    pub(super) fn finish(&mut self, mut life: Life, deadline_ms: u64) -> Amount {
        let deadline_ns = self.now_ns() + deadline_ms * MS;
        lock(&self.world).say(|| format!("it is closed, until {} ms", deadline_ns / MS));
        life.accounts.queue.close(*BASE + Duration::from_nanos(deadline_ns));
        let late_ns = deadline_ns + self.plan.turn_max_ms() * MS;
        let turn = self.run_until(&mut life, late_ns);
        assert_eq!(turn, Turn::End, "it has not ended after its deadline");
        if self.now_ns() >= deadline_ns {
            lock(&self.world).fired.add(Fault::EndedByDeadline);
        }

        let Life { worker, accounts, .. } = life;
        end(worker, &accounts);
        let offered = self.source().offered;
        let hop = hop(&accounts);
        let world = lock(&self.world);
        assert_eq!(hop.unaccounted, 0, "{hop:?}");
        assert_eq!(hop.received, offered + accounts.recovered.load());
        assert!(hop.in_flight.is_zero(), "{hop:?}");
        let left = hop.kept;
        if self.plan.sync.is_none() {
            assert_eq!(left, Amount::default(), "{hop:?}");
            assert_eq!(hop.uncertain.count, world.maybe_rows(), "uncertain at the end: {hop:?}");
        }
        assert_eq!(hop.delivered, world.expected.acknowledged, "at the end: {hop:?}");
        drop(world);
        if !hop.uncertain.is_zero() {
            lock(&self.world).fired.add(Fault::EndedUncertain);
        }
        self.lost_rows += hop.left().count - hop.delivered.count - left.count;
        if !hop.dropped_for(Reason::SpoolUnsynced).is_zero() {
            lock(&self.world).fired.add(Fault::EndedUnsynced);
        }
        self.durable_rows = left.count;
        left
    }

    /// Abandons the thread: only rows that were submitted are uncertain.
    pub(super) fn give_up(&mut self, life: Life) {
        let Life { worker, accounts, .. } = life;
        let offered = self.source().offered;
        let queued = accounts.queue.end();
        let before = accounts.counters.uncertain_total().count;
        let lost = queued + accounts.abandon();
        let hop = hop(&accounts);
        assert_eq!((hop.unaccounted, hop.in_flight), (0, Amount::default()), "{hop:?}");
        assert_eq!(hop.received, offered, "{hop:?}");
        self.lost_rows += hop.left().count - hop.delivered.count;

        let mut world = lock(&self.world);
        world.fired.add(Fault::GivenUp);
        world.gone();
        let (maybe, exposed) = (world.maybe_rows(), world.rows_without_fate());
        let uncertain = hop.uncertain.count;
        assert!((maybe..=exposed).contains(&uncertain), "{uncertain}: {maybe} to {exposed}");
        assert!(lost.count >= uncertain - before, "{lost:?}, {uncertain} uncertain");
        drop(world);
        drop(worker);
    }

    /// Stops the machine. Adds the rows that may be lost without a name: those only in memory.
    pub(super) fn crash(&mut self, life: Life) {
        let mut world = lock(&self.world);
        world.fired.add(Fault::Crashed);
        world.say(|| "the machine stops".into());
        drop(world);
        let hop = hop(&life.accounts);
        let is_durable = self.plan.sync == Some(SpoolSync::Always) && !self.has_disk_failed;
        let (spooled, kept) = match is_durable {
            true => (life.worker.spooled_rows(), life.worker.kept_rows()),
            false => (0, 0),
        };
        self.durable_rows = spooled;
        let in_memory = hop.in_flight.count - kept;
        self.lost_rows += hop.left().count - hop.delivered.count + in_memory;
        drop(life);
        lock(&self.world).cut_power();
        self.disk.crash();
    }

    /// After the faults have ended everything must drain, and new rows must be delivered at once.
    pub(super) fn drain(&mut self, mut life: Life) {
        self.heal();
        let end_ns = self.now_ns() + DRAIN.as_nanos() as u64;
        self.source().next_ns = u64::MAX;
        while !is_empty(&life) {
            assert!(self.now_ns() < end_ns, "it has not drained: {:?}", hop(&life.accounts));
            self.turn(&mut life, end_ns);
        }

        // More turns, so that the effects of the last outcome are over.
        let settle_ns = self.now_ns() + 15_000 * MS;
        self.run_until(&mut life, settle_ns);
        let began_ns = self.now_ns();
        let before = hop(&life.accounts).delivered.count;
        let mut source = self.source();
        source.offer();
        source.next_ns = u64::MAX;
        drop(source);
        // Twenty rows, each a batch that is answered within 50 ms, and one second more; on this machine another for the sync.
        let most_ms = if self.plan.is_local { 3_000 } else { 2_000 };
        let limit_ns = began_ns + self.plan.batch.age.as_nanos() as u64 + most_ms * MS;
        while !is_empty(&life) {
            assert!(self.now_ns() < limit_ns, "what came when all was well is late");
            self.turn(&mut life, limit_ns);
        }
        // In some histories a chunk of only totals cannot be encoded.
        let is_delivered = hop(&life.accounts).delivered.count > before;
        assert!(is_delivered || self.plan.kinds == 1);

        let settle_ns = self.now_ns() + 2_000 * MS;
        self.run_until(&mut life, settle_ns);
        let is_open = life.accounts.figures.circuit_open.load() > 0;
        assert!(!(is_delivered && is_open), "the circuit is open although all is well");
        assert_eq!(self.finish(life, 5_000), Amount::default());
    }
}
