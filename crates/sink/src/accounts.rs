//! A sink's counters, and how the ledger reads them.

use crate::destination::OwnFigures;
use crate::queue::Queue;
use crate::spool::{Ended, Recovered};
use ledger::{
    Amount, Event, EventCounter, Gauge, HopBuilder, HopKind, HopSnapshot, Meter, Reason,
    SinkCounters, Tally, Trouble,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that each row takes in a chunk's memory in addition to its own, so that a limit in bytes also limits rows.
pub(crate) const ROW_MEMORY_BYTES: usize = 16;

/// What a sink's spool held when the sink opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolFound {
    /// How much, and how the previous process left it.
    pub recovered: Recovered,
    /// When its oldest row was made, in nanoseconds since 1970; 0 if there is none or its time is unknown.
    pub oldest_unix_ns: u64,
}

/// The counters of one sink. Written by its thread, except those of its queue.
pub(crate) struct Accounts {
    pub(crate) origin: String,
    pub(crate) name: String,
    /// Most rows that can be in the sink.
    pub(crate) capacity_rows: u64,
    pub(crate) queue: Arc<Queue>,
    /// Rows that the spool held when the sink started.
    pub(crate) recovered: Tally,
    unclosed: EventCounter,
    cut_bytes: EventCounter,
    pub(crate) counters: SinkCounters,
    pub(crate) figures: Figures,
    /// The difference between received, left and inside at the last comparison.
    pub(crate) mismatch: EventCounter,
    /// How often an encoder's counts were not those of the rows that it was given.
    pub(crate) violations: EventCounter,
    state: Mutex<State>,
}

/// Counters and measurements outside the law.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) attempts: EventCounter,
    pub(crate) errors: EventCounter,
    pub(crate) retries: EventCounter,
    pub(crate) possible_duplicates: EventCounter,
    pub(crate) panics: EventCounter,
    pub(crate) connects: EventCounter,
    pub(crate) circuit_openings: EventCounter,
    pub(crate) queue_rows: EventCounter,
    pub(crate) queue_bytes: EventCounter,
    pub(crate) spool_rows: EventCounter,
    pub(crate) spool_bytes: EventCounter,
    pub(crate) batches_in_flight: EventCounter,
    pub(crate) encoder_bytes: EventCounter,
    pub(crate) oldest_age_ms: EventCounter,
    pub(crate) circuit_open: EventCounter,
    pub(crate) is_failing: EventCounter,
    pub(crate) last_acknowledged_unix_ms: EventCounter,
}

#[derive(Default)]
struct State {
    trouble: Option<Trouble>,
    /// Figures specific to this kind of destination.
    own: OwnFigures,
    found: Option<SpoolFound>,
    /// What was still inside at the end, and was lost.
    left_at_end: Amount,
    spool_capacity_bytes: Option<u64>,
    /// What was wrong with the spool when the sink ended.
    spool_trouble: Option<Trouble>,
    /// Nobody waits for the thread any more, and it must not count any more.
    is_abandoned: bool,
    standing: Standing,
}

/// Where the rows without a fate are, as last reported by the sink's thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// In the spool: they are kept for the next process.
    pub(crate) kept: Amount,
    /// Not in the spool, and possibly delivered.
    pub(crate) exposed: Amount,
}

fn least(one: Amount, other: Amount) -> Amount {
    Amount { count: one.count.min(other.count), bytes: one.bytes.min(other.bytes) }
}

impl Accounts {
    pub(crate) fn new(
        origin: String,
        name: String,
        queue: Arc<Queue>,
        capacity_rows: u64,
    ) -> Accounts {
        Accounts {
            origin,
            name,
            capacity_rows,
            queue,
            recovered: Tally::default(),
            unclosed: EventCounter::default(),
            cut_bytes: EventCounter::default(),
            counters: SinkCounters::default(),
            figures: Figures::default(),
            mismatch: EventCounter::default(),
            violations: EventCounter::default(),
            state: Mutex::default(),
        }
    }

    /// Lets the sink's thread count, unless the sink has been abandoned, and records where its rows are afterwards.
    pub(crate) fn settle(&self, standing: Standing, count: impl FnOnce()) {
        let mut state = self.lock();
        if !state.is_abandoned {
            count();
            state.standing = standing;
        }
    }

    /// Compares what is inside with what was received and what left. Does nothing once the sink is abandoned, because its rows
    /// then count as gone.
    pub(crate) fn compare(&self, queue_received: Amount, queue_left: Amount, inside: Amount) {
        let state = self.lock();
        if state.is_abandoned {
            return;
        }
        let came = queue_received + self.recovered.load();
        let left = queue_left + self.counters.left();
        let mismatch = came.count as i64 - left.count as i64 - inside.count as i64;
        self.mismatch.set(mismatch.cast_unsigned());
    }

    /// Abandons the thread: it counts nothing more. Rows that it had submitted are uncertain, rows in the spool are kept, and the
    /// rest is dropped. Returns what is lost.
    pub(crate) fn abandon(&self) -> Amount {
        let reason = self.queue.failing_reason().unwrap_or(Reason::Shutdown);
        let mut state = self.lock();
        if state.is_abandoned {
            return Amount::default();
        }
        state.is_abandoned = true;

        // Both under the queue's lock, because a source may still offer chunks.
        let queued = self.queue.inside();
        let left = self.counters.left() + queued.left;
        let inside = (queued.received + self.recovered.load()).saturating_sub(left);
        let kept = least(state.standing.kept, inside);
        let lost = inside.saturating_sub(kept);
        let uncertain = least(state.standing.exposed, lost);
        self.counters.uncertain(uncertain);
        self.counters.drop(reason, lost.saturating_sub(uncertain));
        self.counters.keep(kept);
        lost
    }

    /// Records what the spool held.
    pub(crate) fn set_found(&self, found: SpoolFound) {
        self.lock().found = Some(found);
    }

    /// Counts what the spool held. Call it only within [`settle`](Self::settle).
    pub(crate) fn add_recovered(&self, recovered: Recovered) {
        let Recovered { waiting, cut_bytes, ended, .. } = recovered;
        self.recovered.add(Amount { count: waiting.rows, bytes: waiting.row_bytes });
        self.unclosed.add(u64::from(ended == Ended::Crashed));
        self.cut_bytes.add(cut_bytes);
    }

    pub(crate) fn spool_found(&self) -> Option<SpoolFound> {
        self.lock().found
    }

    /// Everything that has entered.
    pub(crate) fn received(&self) -> Amount {
        self.queue.offered.load() + self.recovered.load()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<Trouble>) {
        self.lock().trouble = trouble;
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.lock().trouble.clone()
    }

    pub(crate) fn set_own_figures(&self, own: OwnFigures) {
        self.lock().own = own;
    }

    pub(crate) fn left_at_end(&self) -> Amount {
        self.lock().left_at_end
    }

    pub(crate) fn set_left_at_end(&self, left: Amount) {
        self.lock().left_at_end = left;
    }

    pub(crate) fn set_spool_capacity(&self, bytes: u64) {
        self.lock().spool_capacity_bytes = Some(bytes);
    }

    pub(crate) fn set_spool_trouble(&self, trouble: Option<Trouble>) {
        self.lock().spool_trouble = trouble;
    }

    pub(crate) fn spool_trouble(&self) -> Option<Trouble> {
        self.lock().spool_trouble.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two related changes, so a poisoned lock is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter for Accounts {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let Figures {
            attempts,
            errors,
            retries,
            possible_duplicates,
            panics,
            connects,
            circuit_openings,
            queue_rows,
            queue_bytes,
            spool_rows,
            spool_bytes,
            batches_in_flight,
            encoder_bytes,
            oldest_age_ms,
            circuit_open,
            is_failing,
            last_acknowledged_unix_ms,
        } = &self.figures;

        let name = Some(self.name.as_str());
        let mut hop = HopBuilder::new(HopKind::Sink, &self.origin, name, self.received())
            .left_sink(&self.counters)
            .left_sink(&self.queue.counters)
            .capacity(self.capacity_rows)
            .mismatch(self.mismatch.load().cast_signed())
            .violations(self.violations.load())
            .event(Event::Attempts, attempts.load())
            .event(Event::Errors, errors.load())
            .event(Event::Retries, retries.load())
            .event(Event::PossibleDuplicates, possible_duplicates.load())
            .event(Event::Recovered, self.recovered.load().count)
            .event(Event::SpoolsUnclosed, self.unclosed.load())
            .event(Event::SpoolCutBytes, self.cut_bytes.load())
            .event(Event::Panics, panics.load())
            .event(Event::Connects, connects.load())
            .event(Event::CircuitOpenings, circuit_openings.load())
            .gauge(Gauge::Up, u64::from(is_failing.load() == 0))
            .gauge(Gauge::QueueRows, queue_rows.load())
            .gauge(Gauge::QueueBytes, queue_bytes.load())
            .gauge(Gauge::QueueLimitBytes, self.queue.bytes_max() as u64)
            .gauge(Gauge::BatchesInFlight, batches_in_flight.load())
            .gauge(Gauge::EncoderBytes, encoder_bytes.load())
            .gauge(Gauge::OldestAgeMs, oldest_age_ms.load())
            .gauge(Gauge::CircuitOpen, circuit_open.load());

        if last_acknowledged_unix_ms.load() > 0 {
            hop = hop.gauge(Gauge::LastAcknowledgedUnixMs, last_acknowledged_unix_ms.load());
        }

        let state = self.lock();
        for (event, count) in &state.own.events {
            hop = hop.event(*event, *count);
        }
        for (gauge, value) in &state.own.gauges {
            hop = hop.gauge(*gauge, *value);
        }
        if let Some(capacity) = state.spool_capacity_bytes {
            hop = hop
                .gauge(Gauge::SpoolRows, spool_rows.load())
                .gauge(Gauge::SpoolBytes, spool_bytes.load())
                .gauge(Gauge::SpoolCapacityBytes, capacity);
        }
        hop = hop.trouble(state.trouble.clone());
        drop(state);
        hops.push(hop.finish(self.received()));
    }
}
