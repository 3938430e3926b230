//! What one end of a link knows of the other.

use ledger::{Amount, Earlier, Event, EventCounter, Gauge, HopBuilder, PeerSender};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const EVENTS: [Event; 17] = [
    Event::Packets,
    Event::Repairs,
    Event::RepairsSpurious,
    Event::Reports,
    Event::Sessions,
    Event::PeerRestarts,
    Event::Contradictions,
    Event::LostInCrash,
    Event::PossibleDuplicates,
    Event::ForgedPackets,
    Event::ReplayedPackets,
    Event::StrangePackets,
    Event::RepeatedDatagrams,
    Event::LateDatagrams,
    Event::PacketsWithoutRoom,
    Event::HellosRefused,
    Event::HelloCookies,
];

const GAUGES: [Gauge; 5] = [
    Gauge::RoundTripUs,
    Gauge::PathLossPpm,
    Gauge::RateBytes,
    Gauge::SessionsOpen,
    Gauge::StateKept,
];

/// The other end of a link, by the random numbers of the sender's run and of the receiver's life.
#[derive(Debug)]
pub(crate) struct LinkPeer {
    pub(crate) run: [u8; 16],
    pub(crate) life: u64,
    pub(crate) kind: PeerKind,
}

#[derive(Debug)]
pub(crate) enum PeerKind {
    /// It receives. What was delivered before its life began; what it had accepted in it before this process took anything; and what
    /// became of all that former processes took.
    Receiver { delivered_before: hop::Amount, accepted_earlier: hop::Amount, earlier: hop::Fates },
    /// It sends, and so much was accepted of that.
    Sender { peer: Arc<hop::Peer>, accepted: Amount },
}

impl LinkPeer {
    /// `delivered`: by the hop, in all.
    fn show(&self, delivered: Amount) -> ledger::Peer {
        let (accepted, sender, earlier) = match &self.kind {
            PeerKind::Receiver { delivered_before, accepted_earlier, earlier } => {
                let mut accepted = delivered.saturating_sub(amount(*delivered_before));
                accepted += amount(*accepted_earlier);
                (accepted, None, earlier_of(earlier))
            }
            PeerKind::Sender { peer, accepted } => {
                let hop::Peer { name, host, listener } = &**peer;
                let (key, host, listener) = (name.clone(), host.clone(), listener.clone());
                (*accepted, Some(PeerSender { key, host, listener }), None)
            }
        };
        let run = format!("{:032x}", u128::from_be_bytes(self.run));
        ledger::Peer { run, life: format!("{:016x}", self.life), accepted, sender, earlier }
    }
}

fn amount(of: hop::Amount) -> Amount {
    Amount { count: of.datagrams, bytes: of.bytes }
}

/// What former processes took, if any.
fn earlier_of(fates: &hop::Fates) -> Option<Earlier> {
    let mut dropped = fates.expired;
    dropped += fates.lapped;
    dropped += fates.ended;
    (fates.taken.datagrams > 0).then(|| Earlier {
        received: amount(fates.taken),
        delivered: amount(fates.delivered),
        dropped: amount(dropped),
        uncertain: amount(fates.uncertain),
        lost_in_crash: amount(fates.lost_in_crash),
    })
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
