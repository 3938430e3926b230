//! The analysis, shared by those who feed it and those who read it.

use ::flows::{Analysis, Moment, NO_ADDRESS, Taken};
use config::FLOWS_NAME;
use ledger::{Amount, Counters, HopBuilder, HopKind, HopSnapshot, Meter, Reason, Tally};
use relay::Datagram;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::clock::{monotonic_ns, realtime_ns};
use tokio::sync::watch;

/// An analysis that several threads feed and read.
///
/// One lock is held for each datagram, each tick and each reader. A reader that holds it for milliseconds costs no datagram: they wait
/// in the rings of their listeners.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    last_event: watch::Sender<u64>,
    /// Each tap has a clone.
    feeding: Arc<()>,
    /// Turns of the thread that ticks.
    heartbeat: AtomicU64,
    /// Written with the lock held, by one thread at a time.
    received: Tally,
    /// As `received`.
    counters: Counters,
    /// By how much the engine's count of datagrams and that of those who gave them differed at the last tick.
    mismatch: AtomicI64,
}

struct Inner {
    analysis: Analysis,
    clock: Clock,
    /// Datagrams that were given to the analysis, those on which it panicked included.
    given: u64,
    /// Datagrams that the analysis has taken.
    taken: u64,
}

/// The clock of figures.
#[derive(Default)]
struct Clock {
    /// The last time at which figures were read.
    read_ns: u64,
    /// The youngest age of a datagram taken since then.
    lag_ns: Option<u64>,
}

impl Clock {
    /// When a datagram of this age arrived.
    fn received(&mut self, now_ns: u64, age_ns: u64) -> u64 {
        self.lag_ns = Some(self.lag_ns.map_or(age_ns, |lag_ns| lag_ns.min(age_ns)));
        now_ns.saturating_sub(age_ns)
    }

    /// Up to when datagrams have been taken. It never goes back.
    fn read(&mut self, now_ns: u64) -> u64 {
        let lag_ns = self.lag_ns.take().unwrap_or(0);
        self.read_ns = self.read_ns.max(now_ns.saturating_sub(lag_ns));
        self.read_ns
    }
}

impl Shared {
    pub(crate) fn new(analysis: Analysis) -> Arc<Shared> {
        let last_event = watch::Sender::new(analysis.events().last_id());
        let inner = Inner { analysis, clock: Clock::default(), given: 0, taken: 0 };
        Arc::new(Shared {
            inner: Mutex::new(inner),
            last_event,
            feeding: Arc::default(),
            heartbeat: AtomicU64::new(0),
            received: Tally::default(),
            counters: Counters::default(),
            mismatch: AtomicI64::new(0),
        })
    }

    /// Looks at the analysis, or changes it. Datagrams wait meanwhile: a matter of milliseconds.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Analysis) -> R) -> R {
        f(&mut self.lock().analysis)
    }

    /// The number of the last event, and who waits for the next.
    pub(crate) fn events(&self) -> watch::Receiver<u64> {
        self.last_event.subscribe()
    }

    /// The time of figures now: up to here datagrams have been taken. `with` it rates are read that are not too low when the analysis
    /// is behind.
    pub(crate) fn clock_ns(&self) -> u64 {
        self.lock().clock.read_ns
    }

    /// Ends flows, forgets agents and looks at thresholds.
    pub(crate) fn tick(&self) {
        let mut inner = self.lock();
        let moment = Moment { clock_ns: inner.clock.read(monotonic_ns()), unix_ns: realtime_ns() };
        let has_news = inner.analysis.tick(moment, &mut ());
        let last_id = inner.analysis.events().last_id();
        inner.check_law(&self.mismatch);
        drop(inner);

        if has_news {
            self.last_event.send_replace(last_id);
        }
        self.heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    /// What a tap holds.
    pub(super) fn feeding(&self) -> Arc<()> {
        Arc::clone(&self.feeding)
    }

    /// Whether there is a tap.
    pub(super) fn is_tapped(&self) -> bool {
        Arc::strong_count(&self.feeding) > 1
    }

    /// How often the thread has turned.
    pub(crate) fn heartbeat(&self) -> u64 {
        self.heartbeat.load(Ordering::Relaxed)
    }

    /// Takes a datagram.
    pub(super) fn take(&self, datagram: &Datagram<'_>) {
        let source = datagram.source.address().map_or(NO_ADDRESS, |source| source.ip());
        let age_ns = realtime_ns().saturating_sub(datagram.received_unix_ns);

        let mut inner = self.lock();
        inner.given += 1;
        let clock_ns = inner.clock.received(monotonic_ns(), age_ns);
        let taken = inner.analysis.datagram(datagram.bytes, source, clock_ns, &mut ());
        // A panic has not come here: the relay counts that datagram, and it never was in this hop.
        inner.taken += 1;

        let amount = Amount::one(datagram.bytes.len());
        self.received.add(amount);
        match taken {
            Taken::Read => self.counters.delivered.add(amount),
            Taken::Duplicate => self.counters.drop(Reason::DuplicateDatagram, amount),
            Taken::AgentLimit => self.counters.drop(Reason::AgentLimit, amount),
            Taken::Malformed(_) => self.counters.drop(Reason::NotSflow, amount),
        }
    }

    /// One that panicked with the lock held has left figures that are a sample off at most.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The engine counts datagrams for itself, by what became of them.
    fn check_law(&self, mismatch: &AtomicI64) {
        let totals = self.analysis.engine().totals();
        let panicked = self.given - self.taken;
        let sorted = totals.read + totals.malformed + totals.duplicate + totals.agent_limit;
        let differs = self.taken as i64 - (totals.datagrams.saturating_sub(panicked)) as i64;
        // A panic may have come before or after the datagram was sorted.
        let is_sorted = (self.taken..=self.given).contains(&sorted);
        let value =
            if differs == 0 && !is_sorted { self.taken as i64 - sorted as i64 } else { differs };
        mismatch.store(value, Ordering::Relaxed);
    }
}

impl Meter for Shared {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let hop = HopBuilder::new(HopKind::Analysis, FLOWS_NAME, None, self.received.load())
            .left(&self.counters)
            .mismatch(self.mismatch.load(Ordering::Relaxed))
            // The one that is being sorted.
            .capacity(1);
        hops.push(hop.finish(self.received.load()));
    }
}
