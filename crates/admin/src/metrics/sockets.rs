//! Figures of the socket collector and of sinks.

use super::collect::{drops, histogram, in_base_unit, pair};
use super::samples::NONE;
use super::{FamilyId as Id, Samples};
use ledger::{ConnectionEnd, Event, Gauge, HopSnapshot, PollPhase};

pub(super) fn add_poll<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    samples.whole(Id::PollVisited, NONE, hop.received.count);
    samples.whole(Id::PollRecords, NONE, hop.delivered.count);
    for (reason, count) in drops(hop) {
        samples.whole(Id::PollDropped, [reason.label()], count);
    }

    for &phase in PollPhase::ALL {
        let spent = Event::Spent(phase);
        samples.add(Id::PollPhase, [phase.label()], in_base_unit(hop.event(spent), spent.unit()));
    }
    for (&event, &count) in &hop.events {
        if let Event::NamespaceErrors(cause) = event {
            samples.whole(Id::SocketsNamespaceErrors, [cause.label()], count);
        }
    }

    for (&gauge, &count) in &hop.gauges {
        let (state, family) = match gauge {
            Gauge::OpenIpv4(state) => (state, "ipv4"),
            Gauge::OpenIpv6(state) => (state, "ipv6"),
            _ => continue,
        };
        samples.whole(Id::SocketsOpen, [state.label(), family], count);
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
    for &how in ConnectionEnd::ALL {
        samples.whole(Id::CloseEnds, [how.label()], hop.event(Event::Ended(how)));
    }
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
}
