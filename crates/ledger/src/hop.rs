mod builder;

pub use builder::HopBuilder;

use crate::{Amount, Event, Gauge, Reason, RejectClass, Way};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kind of place that counts what enters and leaves, in the order of the data path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HopKind {
    /// The kernel's queue of a listener's socket. The kernel does not count arrivals, so `received` is what was read plus what
    /// was dropped; the bytes waiting to be read are the gauge `receive_queue_bytes`.
    Socket,
    /// The receiving thread: truncated and denied datagrams end here, all others enter the ring. With several sockets, their
    /// threads and the one that merges them.
    Receive,
    /// One of several sockets of a listener, from the kernel's queue to the merge. Everything it counts is also in the listener's
    /// `socket` and `receive` hops.
    Member,
    /// A target's outlet from the ring. `received` is everything that entered the ring since the target joined.
    Target,
    /// What the kernel accepted from us for a target: it may still return datagrams as undeliverable.
    Egress,
    /// The socket of a receiver on this host, which another program reads. `received` is what was handed over and not returned,
    /// `dropped` what the kernel dropped at that socket.
    Receiver,
    /// The polls of the socket collector. `received` is every socket that the kernel listed, `delivered` every record made from
    /// one.
    Poll,
    /// The kernel's close events. `received` is every event that the kernel sent us, including lost ones.
    Close,
    /// The analysis of sFlow. `received` is every datagram from its listeners, `delivered` every datagram whose samples were
    /// read.
    Analysis,
    /// A sink's queue, spool and destination. `received` is every record made for it, plus what its spool held at the start;
    /// `delivered` is what the destination acknowledged.
    Sink,
}

impl HopKind {
    /// Every kind, in the order of the data path.
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

    /// Whether it shows a part of what other hops count, and must not be added to them.
    pub fn is_part(self) -> bool {
        self == HopKind::Member
    }
}

/// How reliable the drop counts of a hop are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accounting {
    /// Exact: every datagram is accounted for.
    #[default]
    Exact,
    /// A lower bound: the network reports some of its losses and not others.
    AtLeast,
    /// The drops at a socket to which others may send as well: it is unknown whose datagrams they were.
    AllSenders,
}

/// A number of drops for one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dropped {
    pub reason: Reason,
    #[serde(flatten)]
    pub amount: Amount,
}

/// A number of rows that a store refused permanently, with the class of the refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rejected {
    pub class: RejectClass,
    #[serde(flatten)]
    pub amount: Amount,
}

/// What is wrong with a destination, and how to fix it. Never contains a secret or part of a payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trouble {
    /// What failed and why, with the address.
    pub what: String,
    /// The setting or command that helps.
    pub fix: String,
}

/// One end of a link to another Weir, in terms that the other end uses too, so that both can be compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Random number of the sender's run, in hexadecimal. At a receiver, all zeros: the sum of this sender's runs that were forgotten,
    /// or, without host and listener, of all other senders that have the key.
    pub run: String,
    /// Random number of the receiver's life, in hexadecimal.
    pub life: String,
    /// What the receiver has accepted of the run in that life. The sender knows only the settled part.
    pub accepted: Amount,
    /// The sender; absent at the sender itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sender: Option<PeerSender>,
    /// What became of what earlier processes of this end sent in the same run; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub earlier: Option<Earlier>,
}

/// What became of everything that earlier processes of a link's sending end took, apart from the current law: received =
/// delivered + dropped + uncertain + lost in a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Earlier {
    pub received: Amount,
    pub delivered: Amount,
    pub dropped: Amount,
    /// Sent to a receiver that has since lost its state.
    pub uncertain: Amount,
    /// In flight when a process ended without stopping properly, and not accepted by the other end.
    pub lost_in_crash: Amount,
}

/// The sender to a listener for other Weirs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerSender {
    /// The name of its key.
    pub key: String,
    /// The host name it reports, and the listener there.
    pub host: String,
    pub listener: String,
}

/// Delays from receive to send, as a histogram.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Delay {
    /// Upper bounds in microseconds, inclusive.
    #[serde(with = "crate::decimal::list")]
    pub bounds_us: Vec<u64>,
    /// Datagrams in each bucket; one bucket more than bounds.
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
    /// The origin of what is counted here: the name of a listener, or `sockets` for the socket collector.
    pub origin: String,
    /// Name of the target or sink, for hops that belong to one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<String>,
    /// Everything that entered.
    pub received: Amount,
    /// Everything that was delivered.
    pub delivered: Amount,
    /// Everything that was dropped, by reason; reasons without drops are absent.
    pub dropped: Vec<Dropped>,
    /// Rows that the store refused permanently, by class; classes without refusals are absent.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rejected: Vec<Rejected>,
    /// Rows that were sent and never acknowledged, so that the store may or may not have them; absent if there are none.
    #[serde(skip_serializing_if = "Amount::is_zero", default)]
    pub uncertain: Amount,
    /// Rows in a sink's spool when the sink ended, for its next life; absent if there are none.
    #[serde(skip_serializing_if = "Amount::is_zero", default)]
    pub kept: Amount,
    /// `received - delivered - dropped - rejected - uncertain - kept`: what is inside.
    pub in_flight: Amount,
    /// Most that can be inside; absent where nothing is held.
    #[serde(with = "crate::decimal::option", skip_serializing_if = "Option::is_none", default)]
    pub capacity: Option<u64>,
    /// Whether the drops are exact or a lower bound.
    pub accounting: Accounting,
    /// By how much the law is violated; 0 when it holds. Negative: more left than entered. Positive: more is inside than fits, or
    /// something left uncounted.
    #[serde(with = "crate::decimal")]
    pub unaccounted: i64,
    /// How often the hop's owner found that two of its own counts differ, although each is in the law by itself. Absent if never;
    /// anything but 0 is a bug of Weir.
    #[serde(with = "crate::decimal", skip_serializing_if = "is_zero", default)]
    pub violations: u64,
    /// Counts outside the law: attempts, retries, errors.
    #[serde(with = "crate::decimal::map", skip_serializing_if = "BTreeMap::is_empty", default)]
    pub events: BTreeMap<Event, u64>,
    /// Values that go up and down: buffer sizes, ages, states.
    #[serde(with = "crate::decimal::map", skip_serializing_if = "BTreeMap::is_empty", default)]
    pub gauges: BTreeMap<Gauge, u64>,
    /// Time from receive to send.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delay: Option<Delay>,
    /// What is wrong with the destination at this moment; absent if nothing is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trouble: Option<Trouble>,
    /// The Weirs at the other end, for an end of a link; absent elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub peers: Vec<Peer>,
}

impl HopSnapshot {
    /// Everything that left, in any way.
    pub fn left(&self) -> Amount {
        self.delivered + self.dropped_total() + self.rejected_total() + self.uncertain + self.kept
    }

    /// Everything that left without being delivered, by how it left.
    pub fn undelivered(&self) -> impl Iterator<Item = (Way, Amount)> {
        let dropped = self.dropped.iter().map(|drop| (Way::Dropped(drop.reason), drop.amount));
        let rejected = self.rejected.iter();
        let rejected = rejected.map(|rejected| (Way::Rejected(rejected.class), rejected.amount));
        let uncertain = (!self.uncertain.is_zero()).then_some((Way::Uncertain, self.uncertain));
        let kept = (!self.kept.is_zero()).then_some((Way::Kept, self.kept));
        dropped.chain(rejected).chain(uncertain).chain(kept)
    }

    /// The sum of all drops.
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

    /// How often an event outside the law happened; 0 if never.
    pub fn event(&self, event: Event) -> u64 {
        self.events.get(&event).copied().unwrap_or_default()
    }

    /// The value of a gauge; `None` where the hop does not have it.
    pub fn gauge(&self, gauge: Gauge) -> Option<u64> {
        self.gauges.get(&gauge).copied()
    }

    /// Adds the counts of another life of the same hop. Gauges and trouble are kept.
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
        self.violations += earlier.violations;

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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
