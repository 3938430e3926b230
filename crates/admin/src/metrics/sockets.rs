//! Figures of the socket collector and of sinks.

use super::collect::{drops, event, events_below, histogram, pair};
use super::samples::NONE;
use super::{FamilyId as Id, Samples};
use ledger::HopSnapshot;

/// The parts of a poll whose time is counted, as they stand in the hop's events before `_us`.
const PHASES: [&str; 4] = ["discover", "open", "walk", "records"];
/// How connections end, as they stand in the hop's events after `ended_`.
const ENDS: [&str; 7] =
    ["our_close", "peer_close", "our_reset", "peer_reset", "refused", "timed_out", "unknown"];

pub(super) fn add_poll<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    samples.whole(Id::PollVisited, NONE, hop.received.count);
    samples.whole(Id::PollRecords, NONE, hop.delivered.count);
    for (reason, count) in drops(hop) {
        samples.whole(Id::PollDropped, [reason.label()], count);
    }
    for (name, id) in [
        ("polls", Id::Polls),
        ("overruns", Id::PollOverruns),
        ("interrupted", Id::SocketsInterrupted),
        ("unknown_attributes", Id::SocketsUnknownAttributes),
        ("evicted", Id::SocketsTableEvicted),
        ("namespaces_new", Id::SocketsNamespacesNew),
        ("quiet_namespaces", Id::SocketsQuiet),
    ] {
        samples.whole(id, NONE, event(hop, name));
    }
    for phase in PHASES {
        let spent_us = event(hop, &format!("{phase}_us"));
        samples.number(Id::PollPhase, [phase], spent_us as f64 / 1e6);
    }
    for (cause, count) in events_below(hop, "namespace_errors_") {
        samples.whole(Id::SocketsNamespaceErrors, [cause], count);
    }
    for (name, id) in [
        ("namespaces", Id::SocketsNamespaces),
        ("namespaces_left_out", Id::SocketsNamespacesLeftOut),
        ("table_entries", Id::SocketsTable),
        ("table_capacity", Id::SocketsTableCapacity),
    ] {
        if let Some(&value) = hop.gauges.get(name) {
            samples.whole(id, NONE, value);
        }
    }
    for (name, &count) in &hop.gauges {
        let labels = name.strip_prefix("open_").and_then(|rest| rest.rsplit_once('_'));
        if let Some((state, family)) = labels {
            samples.whole(Id::SocketsOpen, [state, family], count);
        }
    }
    if let Some(delay) = &hop.delay {
        samples.add(Id::PollDuration, NONE, histogram(delay));
    }
}

pub(super) fn add_close<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    samples.whole(Id::Closes, NONE, hop.received.count);
    samples.whole(Id::CloseRecords, NONE, hop.delivered.count);
    for (reason, count) in drops(hop) {
        samples.whole(Id::CloseDropped, [reason.label()], count);
    }
    for how in ENDS {
        samples.whole(Id::CloseEnds, [how], event(hop, &format!("ended_{how}")));
    }
    samples.whole(Id::ClosesUnobserved, NONE, event(hop, "unobserved"));
    samples.whole(Id::ClosesUnheard, NONE, event(hop, "unheard"));
}

pub(super) fn add_sink<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let [origin, sink] = pair(hop);
    let labels = [origin, sink];
    samples.whole(Id::SinkOffered, labels, hop.received.count);
    samples.whole(Id::SinkDelivered, labels, hop.delivered.count);
    samples.whole(Id::SinkDeliveredBytes, labels, hop.delivered.bytes);
    for (reason, count) in drops(hop) {
        samples.whole(Id::SinkDropped, [origin, sink, reason.label()], count);
    }
    samples.whole(Id::SinkQueue, labels, hop.in_flight.count);
    for (name, id) in [("queue_bytes", Id::SinkQueueBytes), ("up", Id::SinkUp)] {
        if let Some(&value) = hop.gauges.get(name) {
            samples.whole(id, labels, value);
        }
    }
    samples.whole(Id::SinkErrors, labels, event(hop, "errors"));
}
