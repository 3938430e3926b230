mod builder;

pub use builder::HopBuilder;

use crate::{Amount, Event, Gauge, Reason, RejectClass, Way};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kind of place that counts what enters and leaves, in the order of the path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HopKind {
    /// The kernel's queue of a listener's socket. The kernel keeps no count of what arrived, so that `received` is
    /// what was read plus what was dropped; what waits to be read is the gauge `receive_queue_bytes`.
    Socket,
    /// The receiving thread: truncated and denied datagrams end here, the rest enters the ring. With several sockets, their threads
    /// and the one that merges what they read.
    Receive,
    /// One of several sockets of a listener, from the kernel's queue to where they are merged. All it counts is in the listener's
    /// `socket` and `receive` hops too.
    Member,
    /// A target's way out of the ring. `received` is everything that entered the ring since the target joined.
    Target,
    /// What the kernel took from us for a target: it may still give datagrams back as undeliverable.
    Egress,
    /// The socket of a receiver on this host, which another program reads. `received` is what was handed over and did not come
    /// back, `dropped` what the kernel dropped at that socket.
    Receiver,
    /// The polls of the socket collector. `received` is every socket that the kernel listed, `delivered` every record made of one.
    Poll,
    /// The kernel's close events. `received` is every event that the kernel sent us, lost ones included.
    Close,
    /// The analysis of sFlow. `received` is every datagram that it took from its listeners, `delivered` every one whose samples were
    /// read.
    Analysis,
    /// A sink's queue, spool and destination. `received` is every record that was made for it, and what its spool held at the start;
    /// `delivered` is what the destination acknowledged.
    Sink,
}

impl HopKind {
    /// Every kind, in the order of the path.
    pub const ALL: [HopKind; 10] = [
        HopKind::Socket,
        HopKind::Receive,
        HopKind::Member,
        HopKind::Target,
        HopKind::Egress,
        HopKind::Receiver,
        HopKind::Poll,
        HopKind::Close,
        HopKind::Analysis,
        HopKind::Sink,
    ];

    /// The name in JSON and on screen.
    pub fn label(self) -> &'static str {
        match self {
            HopKind::Socket => "socket",
            HopKind::Receive => "receive",
            HopKind::Member => "member",
            HopKind::Target => "target",
            HopKind::Egress => "egress",
            HopKind::Receiver => "receiver",
            HopKind::Poll => "poll",
            HopKind::Close => "close",
            HopKind::Analysis => "analysis",
            HopKind::Sink => "sink",
        }
    }

    /// Whether it shows a part of what other hops count, so that it must not be added to them.
    pub fn is_part(self) -> bool {
        self == HopKind::Member
    }
}

/// How far the drops of a hop can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accounting {
    /// Every datagram is where it says.
    #[default]
    Exact,
    /// At least these were dropped: the network reports some of its losses and is silent about others.
    AtLeast,
    /// So many were dropped at a socket that others may send to as well: whose they were is not known.
    AllSenders,
}

/// A number of drops with their reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dropped {
    pub reason: Reason,
    #[serde(flatten)]
    pub amount: Amount,
}

/// A number of rows that a store refused permanently, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rejected {
    pub class: RejectClass,
    #[serde(flatten)]
    pub amount: Amount,
}

/// What is wrong with a destination, and how to fix it. Never contains a secret or a part of a payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trouble {
    /// What failed and why, with the address.
    pub what: String,
    /// The setting or command that would help.
    pub fix: String,
}

/// One end of a link to another Weir, in words that the other end uses too: what both say can be compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Random number of the sender's run, in hexadecimal.
    pub run: String,
    /// Random number of the receiver's life, in hexadecimal.
    pub life: String,
    /// What the receiver has accepted of the run in that life. The sender knows it of what is settled.
    pub accepted: Amount,
    /// Who sends; absent at the sender.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sender: Option<PeerSender>,
    /// What became of what former processes of this end sent in the same run; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub earlier: Option<Earlier>,
}

/// What became of all that former processes of a link's sending end took, beside the law of this one:
/// received = delivered + dropped + uncertain + lost in a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Earlier {
    pub received: Amount,
    pub delivered: Amount,
    pub dropped: Amount,
    /// Sent to a receiver that has lost its memory.
    pub uncertain: Amount,
    /// On their way when a process ended without a stop, and not accepted by the other end.
    pub lost_in_crash: Amount,
}

/// Who sends to a listener of other Weirs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerSender {
    /// The name of its key.
    pub key: String,
    /// What it calls its host, and the listener there.
    pub host: String,
    pub listener: String,
}

/// Delays from receive to send, as counts in buckets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Delay {
    /// Upper bounds in microseconds, inclusive.
    #[serde(with = "crate::decimal::list")]
    pub bounds_us: Vec<u64>,
    /// Datagrams in each bucket; one more than there are bounds.
    #[serde(with = "crate::decimal::list")]
    pub counts: Vec<u64>,
    /// Sum of all delays in microseconds.
    #[serde(with = "crate::decimal")]
    pub sum_us: u64,
}

/// One hop at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HopSnapshot {
    pub hop: HopKind,
    /// Where what is counted here began: the name of a listener, or `sockets` for the socket collector.
    pub origin: String,
    /// Name of the target or sink, for the hops that belong to one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<String>,
    /// Everything that entered.
    pub received: Amount,
    /// Everything that left by the ordinary way.
    pub delivered: Amount,
    /// Everything that was dropped; reasons that dropped nothing are absent.
    pub dropped: Vec<Dropped>,
    /// What the store refused permanently; classes that refused nothing are absent.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rejected: Vec<Rejected>,
    /// What was sent and never answered, so that the store may have it or not; absent if there is none.
    #[serde(skip_serializing_if = "Amount::is_zero", default)]
    pub uncertain: Amount,
    /// What a sink's spool had when the sink ended, for its next life; absent if there is none.
    #[serde(skip_serializing_if = "Amount::is_zero", default)]
    pub kept: Amount,
    /// `received - delivered - dropped - rejected - uncertain - kept`: what is inside.
    pub in_flight: Amount,
    /// Most that can be inside; absent where nothing is kept.
    #[serde(with = "crate::decimal::option", skip_serializing_if = "Option::is_none", default)]
    pub capacity: Option<u64>,
    /// Whether the drops are exact or a lower bound.
    pub accounting: Accounting,
    /// By how much the law fails; 0 when it holds. Negative: more left than entered. Positive: more is inside than fits, or
    /// something left that nobody counted.
    #[serde(with = "crate::decimal")]
    pub unaccounted: i64,
    /// Counts outside the law: attempts, retries, errors.
    #[serde(with = "crate::decimal::map", skip_serializing_if = "BTreeMap::is_empty", default)]
    pub events: BTreeMap<Event, u64>,
    /// Values that go up and down: buffer sizes, ages, states.
    #[serde(with = "crate::decimal::map", skip_serializing_if = "BTreeMap::is_empty", default)]
    pub gauges: BTreeMap<Gauge, u64>,
    /// Time from receive to send.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delay: Option<Delay>,
    /// What is wrong with the destination at this moment; absent while nothing is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trouble: Option<Trouble>,
    /// The Weirs at the other end, for what is an end of a link; absent elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peers: Vec<Peer>,
}

impl HopSnapshot {
    /// Everything that left, by any way.
    pub fn left(&self) -> Amount {
        self.delivered + self.dropped_total() + self.rejected_total() + self.uncertain + self.kept
    }

    /// Everything that left without being delivered, by the way it went.
    pub fn undelivered(&self) -> impl Iterator<Item = (Way, Amount)> {
        let dropped = self.dropped.iter().map(|drop| (Way::Dropped(drop.reason), drop.amount));
        let rejected = self.rejected.iter();
        let rejected = rejected.map(|rejected| (Way::Rejected(rejected.class), rejected.amount));
        let uncertain = (!self.uncertain.is_zero()).then_some((Way::Uncertain, self.uncertain));
        let kept = (!self.kept.is_zero()).then_some((Way::Kept, self.kept));
        dropped.chain(rejected).chain(uncertain).chain(kept)
    }

    /// All drops together.
    pub fn dropped_total(&self) -> Amount {
        self.dropped.iter().map(|drop| drop.amount).sum()
    }

    /// Drops for one reason.
    pub fn dropped_for(&self, reason: Reason) -> Amount {
        self.dropped.iter().filter(|drop| drop.reason == reason).map(|drop| drop.amount).sum()
    }

    /// Everything that the store refused permanently.
    pub fn rejected_total(&self) -> Amount {
        self.rejected.iter().map(|rejected| rejected.amount).sum()
    }

    /// What the store refused permanently, in this class.
    pub fn rejected_with(&self, class: RejectClass) -> Amount {
        let with = self.rejected.iter().filter(|rejected| rejected.class == class);
        with.map(|rejected| rejected.amount).sum()
    }

    /// How often something happened outside the law; 0 if it never did.
    pub fn event(&self, event: Event) -> u64 {
        self.events.get(&event).copied().unwrap_or_default()
    }

    /// The value of a gauge; `None` where the hop does not have it.
    pub fn gauge(&self, gauge: Gauge) -> Option<u64> {
        self.gauges.get(&gauge).copied()
    }

    /// Adds the counts of another life of the same hop. Gauges and trouble stay.
    pub fn absorb(&mut self, earlier: &HopSnapshot) {
        self.capacity = match (self.capacity, earlier.capacity) {
            (Some(own), Some(other)) => Some(own + other),
            (own, other) => own.or(other),
        };

        if earlier.accounting != Accounting::Exact {
            self.accounting = earlier.accounting;
        }

        self.received += earlier.received;
        self.delivered += earlier.delivered;
        self.in_flight += earlier.in_flight;
        self.unaccounted += earlier.unaccounted;

        for drop in &earlier.dropped {
            match self.dropped.iter_mut().find(|own| own.reason == drop.reason) {
                Some(own) => own.amount += drop.amount,
                None => self.dropped.push(*drop),
            }
        }

        for rejected in &earlier.rejected {
            self.add_rejected(*rejected);
        }
        self.uncertain += earlier.uncertain;
        self.kept += earlier.kept;

        for (event, count) in &earlier.events {
            *self.events.entry(*event).or_default() += count;
        }

        match (&mut self.delay, &earlier.delay) {
            (Some(own), Some(old)) => {
                own.sum_us += old.sum_us;
                own.counts.iter_mut().zip(&old.counts).for_each(|(own, old)| *own += old);
            }
            (own @ None, Some(old)) => *own = Some(old.clone()),
            _ => {}
        }
    }

    fn add_rejected(&mut self, rejected: Rejected) {
        match self.rejected.iter_mut().find(|own| own.class == rejected.class) {
            Some(own) => own.amount += rejected.amount,
            None if rejected.amount.is_zero() => {}
            None => self.rejected.push(rejected),
        }
    }
}
