//! What one end of a link knows about the other.

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

/// The other end of a link, identified by the random numbers of the sender's run and of the receiver's life.
#[derive(Debug)]
pub(crate) struct LinkPeer {
    pub(crate) run: [u8; 16],
    pub(crate) life: u64,
    pub(crate) kind: PeerKind,
}

#[derive(Debug)]
pub(crate) enum PeerKind {
    /// A receiver, with what was delivered before its life began, what it had accepted in that life before this process took
    /// anything, and what became of all that earlier processes took.
    Receiver { delivered_before: hop::Amount, accepted_earlier: hop::Amount, earlier: hop::Fates },
    /// A sender, with what was accepted from it.
    Sender { peer: Arc<hop::Peer>, accepted: Amount },
}

impl LinkPeer {
    /// `delivered` is the hop's total.
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

/// What became of the datagrams that earlier processes took, if any.
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

/// Figures of a link. Written by the thread that drives it.
#[derive(Default, Debug)]
pub(crate) struct LinkFigures {
    /// Updated with `try_lock` a few times a second.
    peers: Mutex<Vec<LinkPeer>>,
    events: [EventCounter; EVENTS.len()],
    gauges: [EventCounter; GAUGES.len()],
    has_gauge: [AtomicBool; GAUGES.len()],
}

impl LinkFigures {
    /// Publishes these figures.
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

    /// Publishes these peers. Returns false and publishes nothing while a reader holds the lock: the thread never waits.
    pub(crate) fn show_peers(&self, peers: impl Iterator<Item = LinkPeer>) -> bool {
        let Ok(mut shown) = self.peers.try_lock() else { return false };
        shown.clear();
        shown.extend(peers);
        true
    }

    /// Adds the figures to a hop that already has its deliveries.
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
