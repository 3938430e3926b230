//! Metrics of the socket collector that have labels of their own.

use super::collect::in_base_unit;
use super::{FamilyId as Id, Samples};
use ledger::{ConnectionEnd, Event, Gauge, HopSnapshot, PollPhase};

pub(super) fn add_poll<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
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
}

pub(super) fn add_ends<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    for &how in ConnectionEnd::ALL {
        samples.whole(Id::CloseEnds, [how.label()], hop.event(Event::Ended(how)));
    }
}
