//! The analysis, shared by the threads that feed it and those that read it.

use super::reading::Readers;
use super::rows::Rows;
use ::flows::{Analysis, Moment, NO_ADDRESS, Taken};
use config::FLOWS_NAME;
use ledger::{
    Amount, Counters, Event, Gauge, HopBuilder, HopKind, HopSnapshot, Meter, Reason, Tally,
};
use relay::Datagram;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sys::clock::{monotonic_ns, realtime_ns};
use tokio::sync::watch;

/// An analysis that several threads feed and read.
///
/// One lock is held for each datagram, each tick and each reader's copy ([`look`](Self::look)). Meanwhile datagrams wait in the
/// rings of their listeners.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    pub(super) readers: Readers,
    last_event: watch::Sender<u64>,
    /// Each tap holds a clone.
    feeding: Arc<()>,
    /// Turns of the ticking thread.
    heartbeat: AtomicU64,
    /// Written with the lock held, by one thread at a time.
    received: Tally,
    /// As `received`.
    counters: Counters,
    /// At the last tick, by how much counts of the same things differed: see [`Inner::check_law`].
    mismatch: AtomicI64,
    losses: Losses,
}

/// Losses on the way to the analysis, as of the last tick.
#[derive(Default)]
struct Losses {
    agents: AtomicU64,
    missing: AtomicU64,
    agent_dropped: AtomicU64,
    /// Datagrams dropped at the sockets and rings of listeners.
    collector: AtomicU64,
    /// Events that no sink received.
    events: AtomicU64,
    /// Samples of flows that no threshold checked.
    unwatched: AtomicU64,
}

pub(super) struct Inner {
    pub(super) analysis: Analysis,
    rows: Rows,
    pub(super) clock: Clock,
    /// Datagrams handed to the analysis, including those it panicked on.
    given: u64,
    /// Datagrams that the analysis has processed.
    taken: u64,
}

/// The clock that figures use.
#[derive(Default)]
pub(super) struct Clock {
    /// The last time at which figures were read.
    pub(super) read_ns: u64,
    /// The smallest age of a datagram taken since then.
    lag_ns: Option<u64>,
}

impl Clock {
    /// The arrival time of a datagram of this age.
    fn received(&mut self, now_ns: u64, age_ns: u64) -> u64 {
        self.lag_ns = Some(self.lag_ns.map_or(age_ns, |lag_ns| lag_ns.min(age_ns)));
        now_ns.saturating_sub(age_ns)
    }

    /// The time up to which datagrams have been processed. Never goes back.
    fn read(&mut self, now_ns: u64) -> u64 {
        let lag_ns = self.lag_ns.take().unwrap_or(0);
        self.read_ns = self.read_ns.max(now_ns.saturating_sub(lag_ns));
        self.read_ns
    }
}

impl Shared {
    /// An analysis whose rows go to no sink.
    #[cfg(test)]
    pub(crate) fn alone(analysis: Analysis) -> Arc<Shared> {
        let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"null:\"";
        let config = config::Config::parse(text, "test").unwrap();
        let every = std::time::Duration::from_secs(60);
        Shared::new(analysis, Rows::new(&config, every, &sink::Fanout::default()))
    }

    pub(crate) fn new(analysis: Analysis, rows: Rows) -> Arc<Shared> {
        let last_event = watch::Sender::new(analysis.events().last_id());
        let inner = Inner { analysis, rows, clock: Clock::default(), given: 0, taken: 0 };
        Arc::new(Shared {
            inner: Mutex::new(inner),
            readers: Readers::default(),
            last_event,
            feeding: Arc::default(),
            heartbeat: AtomicU64::new(0),
            received: Tally::default(),
            counters: Counters::default(),
            mismatch: AtomicI64::new(0),
            losses: Losses::default(),
        })
    }

    /// Changes the analysis; datagrams wait meanwhile. To only read it, use [`look`](Self::look).
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Analysis) -> R) -> R {
        f(&mut self.lock().analysis)
    }

    /// A receiver that sees the number of the last event and can wait for the next.
    pub(crate) fn events(&self) -> watch::Receiver<u64> {
        self.last_event.subscribe()
    }

    /// The current time of the figures' clock.
    #[cfg(test)]
    pub(crate) fn clock_ns(&self) -> u64 {
        self.lock().clock.read_ns
    }

    /// Ends flows, forgets agents and checks thresholds.
    pub(crate) fn tick(&self) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let moment = Moment { clock_ns: inner.clock.read(monotonic_ns()), unix_ns: realtime_ns() };
        if let Some(every) = inner.rows.begin_tick(moment) {
            inner.analysis.tell_every(every);
        }
        let has_news = inner.analysis.tick(moment, &mut inner.rows);
        inner.rows.end_tick(inner.analysis.engine());
        let last_id = inner.analysis.events().last_id();
        inner.check_law(&self.mismatch);
        self.losses.note(&inner.analysis);
        drop(guard);

        if has_news {
            self.last_event.send_replace(last_id);
        }
        self.heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports everything still unreported: the last rows.
    pub(super) fn tell_all(&self) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.analysis.tell_all(&mut inner.rows);
        inner.rows.finish(inner.analysis.engine());
    }

    /// Sets the interval at which ongoing flows are reported.
    pub(super) fn set_export_every(&self, every: Duration) {
        self.lock().rows.set_every(every);
    }

    /// Adds datagrams that were dropped before they reached the analysis.
    pub(super) fn add_dropped(&self, count: u64) {
        self.losses.collector.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds events that were overwritten before a sink could take them.
    pub(crate) fn add_missed_events(&self, count: u64) {
        self.losses.events.fetch_add(count, Ordering::Relaxed);
    }

    /// The token that a tap holds.
    pub(super) fn feeding(&self) -> Arc<()> {
        Arc::clone(&self.feeding)
    }

    /// Whether there is a tap.
    pub(super) fn is_tapped(&self) -> bool {
        Arc::strong_count(&self.feeding) > 1
    }

    /// Turns of the ticking thread.
    pub(crate) fn heartbeat(&self) -> u64 {
        self.heartbeat.load(Ordering::Relaxed)
    }

    /// Processes a datagram.
    pub(super) fn take(&self, datagram: &Datagram<'_>) {
        let source = datagram.source.address().map_or(NO_ADDRESS, |source| source.ip());

        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.given += 1;
        let now_ns = monotonic_ns();
        let age_ns = now_ns.saturating_sub(datagram.arrived_ns);
        let clock_ns = inner.clock.received(now_ns, age_ns);
        let taken = inner.analysis.datagram(datagram.bytes, source, clock_ns, &mut inner.rows);
        // Not reached after a panic: then the relay counts the datagram, and it was never in this hop.
        inner.taken += 1;

        let amount = Amount::one(datagram.bytes.len());
        self.received.add(amount);
        match taken {
            Taken::Read => self.counters.delivered.add(amount),
            Taken::Duplicate => self.counters.drop(Reason::DuplicateDatagram, amount),
            Taken::AgentLimit => self.counters.drop(Reason::AgentLimit, amount),
            Taken::Malformed => self.counters.drop(Reason::NotSflow, amount),
        }
    }

    /// Ignores poisoning: a panic with the lock held leaves figures that are off by one sample at most.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Compares counts of the same things that are made in different places: our count of datagrams with the engine's counts by
    /// outcome; the samples that the decoder found with what became of them, in the engine and in each definition; and the samples
    /// that the engine reported with those in the rows that were made.
    fn check_law(&self, mismatch: &AtomicI64) {
        let engine = self.analysis.engine();
        let totals = engine.totals();
        let panicked = self.given - self.taken;
        let sorted = totals.read + totals.malformed + totals.duplicate + totals.agent_limit;
        // A panic may have come before or after the datagram was sorted, and in the middle of a sample.
        let datagrams = match (self.taken..=self.given).contains(&sorted) {
            true => 0,
            false => self.taken as i64 - sorted as i64,
        };
        let samples = if panicked == 0 { engine.contradictions() as i64 } else { 0 };
        let rows = engine.reported_samples() as i64 - self.rows.samples() as i64;
        let differs = [datagrams, samples, rows].into_iter().find(|one| *one != 0);
        mismatch.store(differs.unwrap_or(0), Ordering::Relaxed);
    }
}

impl Losses {
    fn note(&self, analysis: &Analysis) {
        let engine = analysis.engine();
        let totals = engine.totals();
        // A removed definition takes its count with it, but a counter never goes back.
        self.unwatched.fetch_max(analysis.hot_missed(), Ordering::Relaxed);
        self.agents.store(engine.agents().count() as u64, Ordering::Relaxed);
        self.missing.store(totals.missing, Ordering::Relaxed);
        self.agent_dropped.store(totals.agent_dropped_samples, Ordering::Relaxed);
    }

    fn add_to(&self, hop: HopBuilder) -> HopBuilder {
        let missing = self.missing.load(Ordering::Relaxed);
        let collector = self.collector.load(Ordering::Relaxed);
        hop.event(Event::AgentDroppedSamples, self.agent_dropped.load(Ordering::Relaxed))
            .event(Event::CollectorDropped, collector)
            .event(Event::EventsMissed, self.events.load(Ordering::Relaxed))
            .event(Event::UnwatchedSamples, self.unwatched.load(Ordering::Relaxed))
            .gauge(Gauge::FlowAgents, self.agents.load(Ordering::Relaxed))
            .gauge(Gauge::MissingDatagrams, missing)
            .gauge(Gauge::NetworkMissing, missing.saturating_sub(collector))
    }
}

impl Meter for Shared {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let hop = HopBuilder::new(HopKind::Analysis, FLOWS_NAME, None, self.received.load())
            .left(&self.counters)
            .mismatch(self.mismatch.load(Ordering::Relaxed))
            // The datagram being sorted.
            .capacity(1);
        hops.push(self.losses.add_to(hop).finish(self.received.load()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::flows::{Definition, Engine, Groups, Limits};
    use config::Config;
    use load::sflow::{Agent, AgentOptions, TrueFlow};
    use std::collections::HashSet;
    use std::net::Ipv4Addr;
    use sys::Source;

    const SECOND_NS: u64 = 1_000_000_000;
    const BYTES_PER_S: f64 = 100_000.0 * 1_000.0;

    fn shared() -> Arc<Shared> {
        let text = "[[listener]]\nname = \"in\"\nlisten = \":0\"\n[flows]\nfrom = [\"in\"]\n[[flow]]\nname = \"all\"";
        let config = Config::parse(text, "test").unwrap();
        let definitions: Vec<Definition> = config.flows.unwrap().built_definitions();
        let (limits, groups) = (Limits::default(), Groups::default());
        Shared::alone(Analysis::new(Engine::new(limits, groups, HashSet::new(), definitions), 10))
    }

    fn agent() -> Agent {
        let flow = TrueFlow {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
            protocol: 17,
            src_port: 53,
            dst_port: 4_000,
            frame_bytes: 1_000,
            frames_per_s: 100_000.0,
        };
        Agent::new(AgentOptions { sampling_rate: 100, ..AgentOptions::default() }, vec![flow], 5)
    }

    fn take(shared: &Shared, bytes: &[u8], age_ns: u64) {
        // The clock of the host that received it first, which may say anything.
        let received_unix_ns = age_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let arrived_ns = monotonic_ns() - age_ns;
        shared.take(&Datagram { bytes, source: Source::NONE, received_unix_ns, arrived_ns });
    }

    fn hop(shared: &Shared) -> HopSnapshot {
        let mut hops = Vec::new();
        shared.read(&mut hops);
        hops.remove(0)
    }

    /// Twelve seconds of traffic that waited: all of it is counted at once, and the last of it is a minute old.
    #[test]
    fn an_analysis_that_is_behind_has_the_rates_of_then() {
        let (shared, mut agent) = (shared(), agent());
        let (end_ns, behind_ns) = (12 * SECOND_NS, 60 * SECOND_NS);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let at_ns = agent.next_datagram(&mut bytes).as_nanos() as u64;
            if at_ns >= end_ns {
                break;
            }
            take(&shared, &bytes, behind_ns + end_ns - at_ns);
        }
        shared.tick();

        let rate_at = |clock_ns| {
            shared.with(|analysis| {
                let top = analysis.counting("all").unwrap().top(clock_ns);
                top.first().map_or(0.0, |figure| figure.rate.value)
            })
        };
        let (then, now) = (rate_at(shared.clock_ns()), rate_at(monotonic_ns()));
        assert!((then / BYTES_PER_S - 1.0).abs() < 0.1, "{then}");
        assert!(now < BYTES_PER_S / 100.0, "{now}");
    }

    #[test]
    fn the_clock_of_figures_never_goes_back_and_is_now_at_rest() {
        let mut clock = Clock::default();
        assert_eq!(clock.read(1_000), 1_000);
        assert_eq!(clock.received(2_000, 300), 1_700);
        assert_eq!(clock.received(2_000, 100), 1_900);
        assert_eq!(clock.read(2_000), 1_900);
        assert_eq!(clock.received(2_100, 900), 1_200);
        assert_eq!(clock.read(2_100), 1_900, "one that is old does not turn it back");
        assert_eq!(clock.read(3_000), 3_000);
        assert_eq!(clock.received(10, 1_000), 0);
    }

    /// A planted mismatch: portions of flows that were reported and are in no row.
    #[test]
    fn samples_that_are_reported_and_in_no_row_break_the_law() {
        let (shared, mut agent, mut bytes) = (shared(), agent(), Vec::new());
        shared.with(|analysis| analysis.tell_every(Duration::from_secs(60)));
        agent.next_datagram(&mut bytes);
        take(&shared, &bytes, 0);
        shared.tick();
        assert_eq!(hop(&shared).unaccounted, 0);
        shared.with(|analysis| analysis.tell_all(&mut ()));
        shared.tick();
        assert_eq!(hop(&shared).unaccounted, 5);
    }

    #[test]
    fn a_datagram_that_nobody_gave_breaks_the_law() {
        let (shared, mut agent, mut bytes) = (shared(), agent(), Vec::new());
        agent.next_datagram(&mut bytes);
        take(&shared, &bytes, 0);
        take(&shared, &bytes, 0);
        take(&shared, b"no sflow", 0);
        shared.tick();
        let sound = hop(&shared);
        assert_eq!((sound.received.count, sound.delivered.count, sound.unaccounted), (3, 1, 0));
        assert_eq!(sound.dropped_for(Reason::DuplicateDatagram).count, 1);
        assert_eq!(sound.dropped_for(Reason::NotSflow).count, 1);

        // A planted mismatch: the engine has a datagram that no tap has counted.
        shared.with(|analysis| analysis.datagram(b"no sflow", NO_ADDRESS, 0, &mut ()));
        shared.tick();
        assert_eq!(hop(&shared).unaccounted, -1);
    }
}
