//! What one end of a link knows of the other.

use ledger::{Amount, Event, EventCounter, Gauge, HopBuilder, PeerSender};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// The other end of a link, by the random numbers of the sender's run and of the receiver's life.
#[derive(Debug)]
pub(crate) struct LinkPeer {
    pub(crate) run: [u8; 16],
    pub(crate) life: u64,
    pub(crate) kind: PeerKind,
}

#[derive(Debug)]
pub(crate) enum PeerKind {
    /// It receives. What was delivered before its life began.
    Receiver { delivered_before: Amount },
    /// It sends, and so much was accepted of that.
    Sender { peer: Arc<hop::Peer>, accepted: Amount },
}

impl LinkPeer {
    /// `delivered`: by the hop, in all.
    fn show(&self, delivered: Amount) -> ledger::Peer {
        let (accepted, sender) = match &self.kind {
            PeerKind::Receiver { delivered_before } => {
                (delivered.saturating_sub(*delivered_before), None)
            }
            PeerKind::Sender { peer, accepted } => {
                let hop::Peer { name, host, listener } = &**peer;
                let (key, host, listener) = (name.clone(), host.clone(), listener.clone());
                (*accepted, Some(PeerSender { key, host, listener }))
            }
        };
        let run = format!("{:032x}", u128::from_be_bytes(self.run));
        ledger::Peer { run, life: format!("{:016x}", self.life), accepted, sender }
    }
}

/// Written by the thread that drives the link.
#[derive(Default, Debug)]
pub(crate) struct LinkFigures {
    /// Tried a few times a second.
    peers: Mutex<Vec<LinkPeer>>,
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

    /// Shows these at the other end from here on. Returns false, and shows nothing new, while somebody reads: the thread never waits.
    pub(crate) fn show_peers(&self, peers: impl Iterator<Item = LinkPeer>) -> bool {
        let Ok(mut shown) = self.peers.try_lock() else { return false };
        shown.clear();
        shown.extend(peers);
        true
    }

    /// Adds them to a hop whose deliveries are there already.
    pub(super) fn add_to(&self, mut hop: HopBuilder) -> HopBuilder {
        let delivered = hop.delivered_so_far();
        let shown = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        hop = hop.peers(shown.iter().map(|peer| peer.show(delivered)).collect());
        drop(shown);
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
