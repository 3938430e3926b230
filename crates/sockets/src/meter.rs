//! The collector's counters, and the hops that the ledger reads.

use crate::held::HELD_MAX;
use ledger::{
    Amount, ConnectionEnd, Counters, DelayHistogram, Event, EventCounter, Gauge, HopBuilder,
    HopKind, HopSnapshot, Meter, NamespaceError, PollPhase, Reason, Tally, TcpState,
};
use wire::inet_diag::{Family, State};

/// States that have a gauge: all that a reply can carry.
pub(crate) const STATES: usize = 14;

/// All counters of one collector. Its thread writes them, and any thread reads them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    name: String,
    /// Sockets that the kernel listed, with the bytes of their messages.
    pub(crate) visited: Tally,
    pub(crate) polled: Counters,
    /// Close events read.
    pub(crate) events: Tally,
    pub(crate) closed: Counters,
    /// Close events that the kernel had no room for.
    pub(crate) events_lost: EventCounter,
    pub(crate) polls: EventCounter,
    pub(crate) overruns: EventCounter,
    pub(crate) interrupted: EventCounter,
    pub(crate) unknown_attributes: EventCounter,
    pub(crate) evicted: EventCounter,
    /// Visits to namespaces that were covered without a walk.
    pub(crate) quiet_namespaces: EventCounter,
    pub(crate) queries: EventCounter,
    pub(crate) discover_us: EventCounter,
    pub(crate) open_us: EventCounter,
    pub(crate) walk_us: EventCounter,
    pub(crate) records_us: EventCounter,
    pub(crate) namespace_errors: [EventCounter; NamespaceError::ALL.len()],
    pub(crate) unobserved: EventCounter,
    pub(crate) unpolled: EventCounter,
    /// Connections that closed in new namespaces before those could be listened to.
    pub(crate) unheard: EventCounter,
    pub(crate) never_connected: EventCounter,
    /// Closes that the filter could not decide, whatever became of them.
    pub(crate) undecided: EventCounter,
    pub(crate) rejected: EventCounter,
    pub(crate) rejected_overflow: EventCounter,
    pub(crate) ended: [EventCounter; ConnectionEnd::ALL.len()],
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

    pub(crate) fn namespace_error(&self, cause: NamespaceError) {
        self.namespace_errors[cause as usize].add(1);
    }

    fn poll_hop(&self) -> HopSnapshot {
        // The thread holds at most one socket.
        let mut hop = HopBuilder::new(HopKind::Poll, &self.name, None, self.visited.load())
            .left(&self.polled)
            .capacity(1)
            .event(Event::Polls, self.polls.load())
            .event(Event::Overruns, self.overruns.load())
            .event(Event::Interrupted, self.interrupted.load())
            .event(Event::UnknownAttributes, self.unknown_attributes.load())
            .event(Event::Evicted, self.evicted.load())
            .event(Event::QuietNamespaces, self.quiet_namespaces.load())
            .event(Event::Queries, self.queries.load())
            .event(Event::Spent(PollPhase::Discover), self.discover_us.load())
            .event(Event::Spent(PollPhase::Open), self.open_us.load())
            .event(Event::Spent(PollPhase::Walk), self.walk_us.load())
            .event(Event::Spent(PollPhase::Records), self.records_us.load())
            .event(Event::NamespacesNew, self.namespaces_new.load())
            .gauge(Gauge::Namespaces, self.namespaces.load())
            .gauge(Gauge::NamespacesLeftOut, self.namespaces_left_out.load())
            .gauge(Gauge::TableEntries, self.table_entries.load())
            .gauge(Gauge::TableCapacity, self.table_capacity.load())
            .delay(&self.durations);
        for (cause, count) in NamespaceError::ALL.iter().zip(&self.namespace_errors) {
            hop = hop.event(Event::NamespaceErrors(*cause), count.load());
        }

        for (gauge, states) in [Gauge::OpenIpv4, Gauge::OpenIpv6].iter().zip(&self.open) {
            for (number, count) in states.iter().enumerate() {
                // States that a reply never carries have no gauge. The others appear even at 0.
                if let Some(state) = TcpState::named(State::from_number(number as u8).snake()) {
                    hop = hop.gauge(gauge(state), count.load());
                }
            }
        }
        hop.finish(self.visited.load())
    }

    fn close_hop(&self) -> HopSnapshot {
        // Events that the kernel had no room for entered and left at the same moment: one reading for both.
        let lost = Amount { count: self.events_lost.load(), bytes: 0 };
        let mut hop = HopBuilder::new(HopKind::Close, &self.name, None, self.events.load() + lost)
            .left(&self.closed)
            .dropped(Reason::EventBuffer, lost)
            .capacity(1 + HELD_MAX as u64)
            .event(Event::Unobserved, self.unobserved.load())
            .event(Event::Unheard, self.unheard.load())
            .event(Event::Unpolled, self.unpolled.load())
            .event(Event::NeverConnected, self.never_connected.load())
            .event(Event::Undecided, self.undecided.load())
            .event(Event::RejectedOverflow, self.rejected_overflow.load())
            .gauge(Gauge::RejectedEntries, self.rejected.load())
            .gauge(Gauge::EventBufferBytes, self.event_buffer_bytes.load());
        for (end, count) in ConnectionEnd::ALL.iter().zip(&self.ended) {
            hop = hop.event(Event::Ended(*end), count.load());
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

/// Index of a family in [`Counts::open`].
pub(crate) fn family_row(family: Family) -> usize {
    match family {
        Family::Inet => 0,
        Family::Inet6 => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::CloseReason;

    #[test]
    fn the_ledger_has_the_ends_of_the_records_and_every_state_that_a_reply_can_carry() {
        let ends = ConnectionEnd::ALL.iter().enumerate().map(|(at, end)| (at as u8, end.label()));
        assert!(ends.eq(CloseReason::WORDS.entries.iter().copied()));

        let states = (0..STATES as u8).map(State::from_number);
        let lacking: Vec<_> =
            states.filter(|state| TcpState::named(state.snake()).is_none()).collect();
        assert_eq!(lacking, [State::Unknown(0), State::NewSynReceived, State::BoundInactive]);
    }
}
