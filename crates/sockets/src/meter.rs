//! What the collector counts, and the hops that the ledger reads.

use crate::held::HELD_MAX;
use ledger::{
    Amount, Counters, DelayHistogram, EventCounter, HopBuilder, HopKind, HopSnapshot, Meter,
    Reason, Tally,
};
use record::CloseReason;
use wire::inet_diag::{Family, State};

/// Why a namespace was not visited to its end, or is not heard.
pub(crate) const CAUSES: [&str; 10] = [
    "permission",
    "gone",
    "open",
    "no_id",
    "syscall",
    "refused",
    "no_tcp_diag",
    "truncated",
    "malformed",
    "incomplete",
];

/// States that have a gauge: all that a reply can carry.
pub(crate) const STATES: usize = 14;

/// All counters of one collector. Its thread writes, any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    name: String,
    /// Sockets that the kernel listed, with the bytes of their messages.
    pub(crate) visited: Tally,
    pub(crate) polled: Counters,
    /// Close events that were read.
    pub(crate) events: Tally,
    pub(crate) closed: Counters,
    /// Close events that the kernel had no room for.
    pub(crate) events_lost: EventCounter,
    pub(crate) polls: EventCounter,
    pub(crate) overruns: EventCounter,
    pub(crate) interrupted: EventCounter,
    pub(crate) unknown_attributes: EventCounter,
    pub(crate) evicted: EventCounter,
    /// Visits of namespaces that were read without a walk.
    pub(crate) quiet_namespaces: EventCounter,
    pub(crate) queries: EventCounter,
    pub(crate) discover_us: EventCounter,
    pub(crate) open_us: EventCounter,
    pub(crate) walk_us: EventCounter,
    pub(crate) records_us: EventCounter,
    pub(crate) namespace_errors: [EventCounter; CAUSES.len()],
    pub(crate) unobserved: EventCounter,
    pub(crate) unpolled: EventCounter,
    /// Connections that had closed in new namespaces before these could be heard.
    pub(crate) unheard: EventCounter,
    pub(crate) never_connected: EventCounter,
    /// Closes that the filter could not decide, whatever became of them.
    pub(crate) undecided: EventCounter,
    pub(crate) rejected: EventCounter,
    pub(crate) rejected_overflow: EventCounter,
    pub(crate) ended: [EventCounter; CloseReason::WORDS.entries.len()],
    pub(crate) namespaces: EventCounter,
    pub(crate) namespaces_new: EventCounter,
    pub(crate) namespaces_left_out: EventCounter,
    pub(crate) table_entries: EventCounter,
    pub(crate) table_capacity: EventCounter,
    pub(crate) event_buffer_bytes: EventCounter,
    pub(crate) open: [[EventCounter; STATES]; 2],
    pub(crate) durations: DelayHistogram,
    pub(crate) heartbeat: EventCounter,
}

impl Counts {
    pub(crate) fn new(name: &str) -> Counts {
        Counts { name: name.to_owned(), ..Counts::default() }
    }

    pub(crate) fn namespace_error(&self, cause: &str) {
        let at = CAUSES.iter().position(|known| *known == cause).unwrap_or(CAUSES.len() - 1);
        self.namespace_errors[at].add(1);
    }

    fn poll_hop(&self) -> HopSnapshot {
        // One socket is in the thread's hands at most.
        let mut hop = HopBuilder::new(HopKind::Poll, &self.name, None, self.visited.load())
            .left(&self.polled)
            .capacity(1)
            .event("polls", self.polls.load())
            .event("overruns", self.overruns.load())
            .event("interrupted", self.interrupted.load())
            .event("unknown_attributes", self.unknown_attributes.load())
            .event("evicted", self.evicted.load())
            .event("quiet_namespaces", self.quiet_namespaces.load())
            .event("queries", self.queries.load())
            .event("discover_us", self.discover_us.load())
            .event("open_us", self.open_us.load())
            .event("walk_us", self.walk_us.load())
            .event("records_us", self.records_us.load())
            .event("namespaces_new", self.namespaces_new.load())
            .gauge("namespaces", self.namespaces.load())
            .gauge("namespaces_left_out", self.namespaces_left_out.load())
            .gauge("table_entries", self.table_entries.load())
            .gauge("table_capacity", self.table_capacity.load())
            .delay(&self.durations);
        for (cause, count) in CAUSES.iter().zip(&self.namespace_errors) {
            hop = hop.event(&format!("namespace_errors_{cause}"), count.load());
        }
        for (family, states) in ["ipv4", "ipv6"].iter().zip(&self.open) {
            for (number, count) in states.iter().enumerate() {
                let state = State::from_number(number as u8);
                // Those that a reply never carries stay away; the common ones are there at 0, too.
                if !matches!(
                    state,
                    State::Unknown(_) | State::NewSynReceived | State::BoundInactive
                ) {
                    hop = hop.gauge(&format!("open_{}_{family}", state.snake()), count.load());
                }
            }
        }
        hop.finish(self.visited.load())
    }

    fn close_hop(&self) -> HopSnapshot {
        // What the kernel had no room for entered and left in the same moment: one reading for both.
        let lost = Amount { count: self.events_lost.load(), bytes: 0 };
        let mut hop = HopBuilder::new(HopKind::Close, &self.name, None, self.events.load() + lost)
            .left(&self.closed)
            .dropped(Reason::EventBuffer, lost)
            .capacity(1 + HELD_MAX as u64)
            .event("unobserved", self.unobserved.load())
            .event("unheard", self.unheard.load())
            .event("unpolled", self.unpolled.load())
            .event("never_connected", self.never_connected.load())
            .event("undecided", self.undecided.load())
            .event("rejected_overflow", self.rejected_overflow.load())
            .gauge("rejected_entries", self.rejected.load())
            .gauge("event_buffer_bytes", self.event_buffer_bytes.load());
        for ((_, word), count) in CloseReason::WORDS.entries.iter().zip(&self.ended) {
            hop = hop.event(&format!("ended_{word}"), count.load());
        }
        hop.finish(self.events.load() + lost)
    }
}

impl Meter for Counts {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        hops.push(self.poll_hop());
        hops.push(self.close_hop());
    }
}

/// Row of a family in [`Counts::open`].
pub(crate) fn family_row(family: Family) -> usize {
    match family {
        Family::Inet => 0,
        Family::Inet6 => 1,
    }
}
