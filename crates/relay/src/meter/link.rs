//! What one end of a link knows of the other.

use ledger::{Event, EventCounter, Gauge, HopBuilder};
use std::sync::atomic::{AtomicBool, Ordering};

const EVENTS: [Event; 15] = [
    Event::Packets,
    Event::Repairs,
    Event::RepairsSpurious,
    Event::Reports,
    Event::Sessions,
    Event::PeerRestarts,
    Event::Contradictions,
    Event::PossibleDuplicates,
    Event::ForgedPackets,
    Event::ReplayedPackets,
    Event::StrangePackets,
    Event::RepeatedDatagrams,
    Event::LateDatagrams,
    Event::PacketsWithoutRoom,
    Event::HellosRefused,
];

const GAUGES: [Gauge; 4] =
    [Gauge::RoundTripUs, Gauge::PathLossPpm, Gauge::RateBytes, Gauge::SessionsOpen];

/// Written by the thread that drives the link.
#[derive(Default, Debug)]
pub(crate) struct LinkFigures {
    events: [EventCounter; EVENTS.len()],
    gauges: [EventCounter; GAUGES.len()],
    has_gauge: [AtomicBool; GAUGES.len()],
}

impl LinkFigures {
    /// Shows these from here on.
    pub(crate) fn show(&self, events: &[(Event, u64)], gauges: &[(Gauge, u64)]) {
        for (event, count) in events {
            if let Some(at) = EVENTS.iter().position(|one| one == event) {
                self.events[at].set(*count);
            }
        }
        for (gauge, value) in gauges {
            if let Some(at) = GAUGES.iter().position(|one| one == gauge) {
                self.gauges[at].set(*value);
                self.has_gauge[at].store(true, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn add_to(&self, mut hop: HopBuilder) -> HopBuilder {
        for (event, count) in EVENTS.iter().zip(&self.events) {
            hop = hop.event(*event, count.load());
        }
        for ((gauge, value), is_there) in GAUGES.iter().zip(&self.gauges).zip(&self.has_gauge) {
            if is_there.load(Ordering::Relaxed) {
                hop = hop.gauge(*gauge, value.load());
            }
        }
        hop
    }
}
