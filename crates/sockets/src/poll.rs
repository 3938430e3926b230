//! What concerns a poll as a whole: failing namespaces, sockets that are gone, totals.

use crate::engine::Engine;
use crate::options::Closes;
use crate::table::{Entry, Life};
use crate::totals::Sums;
use crate::walk::{WalkError, Walked};
use ledger::NamespaceError;
use record::{PollTotals, SCHEMA_VERSION};
use std::time::Duration;
use sys::clock::realtime_ns;
use sys::namespace;
use wire::inet_diag::{State, States};

/// How many polls a connection missing from all of them is remembered, if its close event can be heard, because that may still
/// come. For example, the peer has reset the connection and the program has not looked at its descriptor since, or the last
/// segment waits for a neighbor's address. Most come within seconds, but a program that never looks would keep the entry for as
/// long as it runs. After this many polls the connection counts as unobserved, and a later event makes a record like that of a
/// connection that no poll has seen.
pub(crate) fn missing_kept_polls(interval: Duration) -> u32 {
    const POLLS_MIN: u32 = 30;
    const MILLISECONDS_MIN: u128 = 5_000;
    let polls = MILLISECONDS_MIN / interval.as_millis().max(1);
    u32::try_from(polls).unwrap_or(POLLS_MIN).max(POLLS_MIN)
}

/// A poll ends after this many intervals: namespaces, which anybody may create, must not delay the others by more.
pub(crate) const POLL_INTERVALS_MAX: u32 = 10;

/// What the last poll did not get to.
#[derive(Default)]
pub(crate) struct PutOff {
    /// Places of the namespaces, in order.
    pub(crate) places: Vec<u32>,
    /// What it would have requested there.
    pub(crate) states: States,
    pub(crate) is_keyframe: bool,
}

impl Engine<'_> {
    /// Records the result of a walk, and what it took until it ended or failed.
    pub(crate) fn walked(
        &mut self,
        place: u32,
        (spent_ns, walked): (u64, Walked),
        result: Result<(), WalkError>,
    ) {
        match result {
            Ok(()) => {
                self.namespaces.walked(place, self.moment.poll);
                self.sums.namespaces_visited += 1;
            }
            Err(error) => {
                self.sums.namespaces_failed += 1;
                self.counts.namespace_error(error.cause());
                let name = self.place_name(place);
                self.problem(error.cause().label(), || {
                    format!("the sockets of network namespace {name} could not be read to the end: {error}")
                });
            }
        }

        self.counts.interrupted.add(u64::from(walked.interrupted));
        let records_ns = spent_ns.saturating_sub(walked.kernel_ns);
        self.counts.walk_us.add(walked.kernel_ns / 1_000);
        self.counts.records_us.add(records_ns / 1_000);

        self.sums.walks += walked.dumps;
        self.sums.walk_ns += walked.kernel_ns;
        self.sums.records_ns += records_ns;
        self.sums.bytes_read += walked.bytes;
    }

    /// Records that a namespace could not be entered.
    pub(crate) fn cannot_open(&mut self, error: &namespace::Error) {
        if *error == namespace::Error::Gone {
            return self.vanished();
        }

        self.sums.namespaces_failed += 1;
        let cause = match error {
            namespace::Error::NotPermitted { .. } => NamespaceError::Permission,
            _ => NamespaceError::Open,
        };
        self.counts.namespace_error(cause);

        let name = self.place_name(self.moment.place);
        self.problem(cause.label(), || {
            format!(
                "{error}: its sockets are missing (network namespace {name}, and others like it)"
            )
        });
    }

    /// Records how many namespaces the poll did not get to.
    pub(crate) fn put_off(&mut self, namespaces: usize) {
        self.sums.namespaces_put_off = namespaces as u64;
        if namespaces > 0 {
            self.problem("put_off", || {
                format!(
                    "a poll took longer than ten intervals, and {namespaces} network namespaces wait for the next, which begins \
                     with them; a longer interval, or a smaller namespaces_max, helps"
                )
            });
        }
    }

    fn place_name(&self, place: u32) -> String {
        match self.namespaces.get(place) {
            Some(known) => match &known.name {
                Some(name) => name.escape_debug().to_string(),
                None => format!("net:[{}]", known.id.inode),
            },
            None => "?".to_owned(),
        }
    }

    /// Removes sockets from the table that are gone, and counts those whose end was not reported.
    pub(crate) fn sweep(&mut self, asked: States) {
        let poll = self.moment.poll;
        let (namespaces, events) = (&self.namespaces, self.hearing.events.as_ref());

        // A socket that moved to a state that was not requested is absent as well.
        let shows_all = (States::CONNECTED - asked).is_empty();
        let missing_kept_polls = missing_kept_polls(self.options.interval);

        let mut unobserved = 0;
        let mut stays = |entry: &mut Entry| {
            let state = State::from_number(entry.state);
            if entry.seen_poll == poll || !namespaces.shows_absence(entry.namespace, poll) {
                return true;
            }

            if state == State::Listen && !asked.contains(State::Listen) {
                return true;
            }

            if entry.life == Life::Closed || !entry.was_socket {
                // Either its close is already known, or no poll saw more of it than a minisock. The connection of such a minisock
                // has another cookie if no poll saw it, and the minisock's own end has no event.
                return false;
            }

            // Waiting is worthwhile only for a close event that can be heard. A server-side handshake has none.
            let is_patient = state != State::SynReceived
                && namespaces.get(entry.namespace).is_some_and(|known| {
                    events.is_some_and(|events| events.hears(known.is_own, known.nsid))
                });
            let kept = if is_patient { missing_kept_polls } else { 1 };
            if entry.life != Life::Missing || poll.wrapping_sub(entry.seen_poll) <= kept {
                entry.life = Life::Missing;
                return true;
            }

            // A connection that never passed the filter is not missed.
            unobserved += u64::from(is_connection(state) && entry.verdict.passes());
            false
        };

        let holders = &mut self.attribution.holders;
        self.table.retain(|entry| {
            let stays = stays(entry);
            if stays {
                holders.keep(entry.holder, poll);
            }
            stays
        });
        holders.sweep(poll, missing_kept_polls);

        self.namespaces.forget_gone(poll);
        self.filter.rejected.sweep(poll, missing_kept_polls);

        // A connection in a state that was not requested may be absent without having closed.
        if shows_all && self.options.closes == Closes::On {
            self.counts.unobserved.add(unobserved);
            self.sums.closes_unobserved += unobserved;
        }
    }

    /// Publishes the totals of the poll.
    pub(crate) fn finish_poll(&mut self, began_unix_ns: u64) {
        for (gauges, counts) in self.counts.open.iter().zip(&self.open) {
            for (gauge, count) in gauges.iter().zip(counts) {
                gauge.set(*count);
            }
        }
        self.counts.polls.add(1);
        self.counts.durations.add(self.sums.poll_ns / 1_000, 1);
        self.tell_totals(began_unix_ns);
    }

    /// Makes totals of the closes since the last totals before the thread ends, as for a poll that visits nothing. So all totals
    /// together cover everything, and no record follows the last one.
    pub(crate) fn finish(&mut self) {
        self.settle_newcomers();
        let sums = &self.sums;
        let closes = sums.closes_observed + sums.closes_lost + sums.connections_unheard;
        let namespaces = sums.namespaces_new + sums.namespaces_vanished;

        if closes + namespaces > 0 || self.emission.sequence != self.emission.told_sequence {
            self.moment.poll += 1;
            self.is_keyframe = false;
            self.tell_totals(realtime_ns());
        }
    }

    pub(crate) fn tell_totals(&mut self, began_unix_ns: u64) {
        let evicted = self.table.evicted();
        // The table counts since the start, and the counter holds what was published so far.
        self.sums.evicted = evicted - self.counts.evicted.load();
        self.counts.evicted.add(self.sums.evicted);
        if self.sums.evicted > 0 {
            self.table_is_full();
        }

        self.counts.table_entries.set(self.table.len() as u64);
        self.counts.rejected.set(self.filter.rejected.len() as u64);
        self.counts.rejected_overflow.add(self.filter.rejected.take_overflowed());

        let poll = self.moment.poll;
        let identity = self.emission.identity;
        let mut totals = PollTotals {
            time_unix_ns: Some(began_unix_ns),
            poll: Some(u64::from(poll)),
            run_id: Some(identity.run_id),
            next_sequence: Some(self.emission.sequence),
            host: identity.host.name(),
            host_id: identity.host.host_id(),
            boot_id: identity.host.boot_id(),
            kernel_release: identity.host.kernel_release(),
            weir_version: Some(env!("CARGO_PKG_VERSION")),
            interval_ms: u64::try_from(self.options.interval.as_millis()).ok(),
            schema_version: Some(SCHEMA_VERSION),
            tags: (!identity.tags.is_empty()).then(|| record::Tags::new(identity.tags)),
            is_keyframe: Some(self.is_keyframe),
            table_entries: Some(self.table.len() as u64),
            ..PollTotals::default()
        };

        self.sums.fill(&mut totals);
        self.emission.output.end_of_poll(&totals);

        self.emission.told_sequence = self.emission.sequence;
        self.emission.unflushed_since = None;
        self.sums = Sums::default();
    }

    fn table_is_full(&mut self) {
        let (capacity, missing) = (self.table.capacity(), self.sums.evicted);
        // A quarter more, as a margin.
        let needed = ((capacity as u64 + missing).saturating_mul(5) / 4).next_power_of_two();
        // The configuration accepts no more.
        let needed = needed.min(4 << 20);

        self.problem("table_full", || {
            format!(
                "the table of known sockets is full with {capacity}, and {missing} more are not remembered: each of their \
                 polls makes a record, and their closing records know nothing of polls. Fix: set table_entries_max = {needed} ({} MiB)",
                (needed * TABLE_ENTRY_BYTES) >> 20
            )
        });
    }

    /// Time since the poll started, in microseconds.
    pub(crate) fn since_us(&self) -> u64 {
        self.moment.at.elapsed().as_micros() as u64
    }
}

/// Memory for one entry and its share of the index, in bytes.
const TABLE_ENTRY_BYTES: u64 = 212;

/// Whether a socket last seen in this state was a connection or was becoming one, and so has a close event of its own.
pub(crate) fn is_connection(state: State) -> bool {
    // A failed handshake has no socket yet (SYN-RECV); the others have no peer.
    !matches!(state, State::SynReceived | State::Listen | State::Closed | State::BoundInactive)
}
