use crate::{Amount, Counters, DelayHistogram, Event, Gauge, Reason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kind of place that counts what enters and leaves, in the order of the path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HopKind {
    /// The kernel's queue of a listener's socket. The kernel keeps no count of what arrived, so that `received` is
    /// what was read plus what was dropped; what waits to be read is the gauge `receive_queue_bytes`.
    Socket,
    /// The receiving thread: truncated and denied datagrams end here, the rest enters the ring.
    Receive,
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
    /// A sink's queue and destination. `received` is every record that was made for it.
    Sink,
}

impl HopKind {
    /// Every kind, in the order of the path.
    pub const ALL: [HopKind; 8] = [
        HopKind::Socket,
        HopKind::Receive,
        HopKind::Target,
        HopKind::Egress,
        HopKind::Receiver,
        HopKind::Poll,
        HopKind::Close,
        HopKind::Sink,
    ];

    /// The name in JSON and on screen.
    pub fn label(self) -> &'static str {
        match self {
            HopKind::Socket => "socket",
            HopKind::Receive => "receive",
            HopKind::Target => "target",
            HopKind::Egress => "egress",
            HopKind::Receiver => "receiver",
            HopKind::Poll => "poll",
            HopKind::Close => "close",
            HopKind::Sink => "sink",
        }
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
    /// `received - delivered - dropped`: what is inside.
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
}

impl HopSnapshot {
    /// All drops together.
    pub fn dropped_total(&self) -> Amount {
        self.dropped.iter().map(|drop| drop.amount).sum()
    }

    /// Drops for one reason.
    pub fn dropped_for(&self, reason: Reason) -> Amount {
        self.dropped.iter().filter(|drop| drop.reason == reason).map(|drop| drop.amount).sum()
    }

    /// How often something happened outside the law; 0 if it never did.
    pub fn event(&self, event: Event) -> u64 {
        self.events.get(&event).copied().unwrap_or_default()
    }

    /// The value of a gauge; `None` where the hop does not have it.
    pub fn gauge(&self, gauge: Gauge) -> Option<u64> {
        self.gauges.get(&gauge).copied()
    }

    /// Adds the counts of another life of the same hop. Gauges stay.
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
}

/// Builds a [`HopSnapshot`] from counters that are read in the right order: what was received (a first look), what left,
/// what was received (again).
pub struct HopBuilder {
    snapshot: HopSnapshot,
    received_before: Amount,
    mismatch: i64,
}

impl HopBuilder {
    /// Starts with the first look at what was received, taken before any counter of what left.
    pub fn new(
        hop: HopKind,
        origin: &str,
        target: Option<&str>,
        received_before: Amount,
    ) -> HopBuilder {
        HopBuilder {
            snapshot: HopSnapshot {
                hop,
                origin: origin.to_owned(),
                target: target.map(str::to_owned),
                received: Amount::default(),
                delivered: Amount::default(),
                dropped: Vec::new(),
                in_flight: Amount::default(),
                capacity: None,
                accounting: Accounting::Exact,
                unaccounted: 0,
                events: BTreeMap::new(),
                gauges: BTreeMap::new(),
                delay: None,
            },
            received_before,
            mismatch: 0,
        }
    }

    /// Says by how much the counters and an independent number of the hop, such as a cursor, differed when their
    /// owner last compared the two.
    pub fn mismatch(mut self, count: i64) -> HopBuilder {
        self.mismatch = count;
        self
    }

    /// Adds what one thread let through and dropped.
    pub fn left(mut self, counters: &Counters) -> HopBuilder {
        self.snapshot.delivered += counters.delivered.load();
        for (reason, amount) in counters.drops() {
            self = self.dropped(reason, amount);
        }
        self
    }

    /// Adds what went through.
    pub fn delivered(mut self, amount: Amount) -> HopBuilder {
        self.snapshot.delivered += amount;
        self
    }

    /// Adds what was dropped.
    pub fn dropped(mut self, reason: Reason, amount: Amount) -> HopBuilder {
        match self.snapshot.dropped.iter_mut().find(|drop| drop.reason == reason) {
            Some(drop) => drop.amount += amount,
            None if amount.is_zero() => {}
            None => self.snapshot.dropped.push(Dropped { reason, amount }),
        }
        self
    }

    /// Everything that left by what was added so far.
    pub fn left_so_far(&self) -> Amount {
        self.snapshot.delivered + self.snapshot.dropped_total()
    }

    /// Says how much can be inside.
    pub fn capacity(mut self, count: u64) -> HopBuilder {
        self.snapshot.capacity = Some(count);
        self
    }

    /// Says how far the drops can be trusted.
    pub fn accounting(mut self, accounting: Accounting) -> HopBuilder {
        self.snapshot.accounting = accounting;
        self
    }

    /// Adds a count outside the law, unless it is zero.
    pub fn event(mut self, event: Event, count: u64) -> HopBuilder {
        if count > 0 {
            self.snapshot.events.insert(event, count);
        }
        self
    }

    /// Adds a gauge.
    pub fn gauge(mut self, gauge: Gauge, value: u64) -> HopBuilder {
        self.snapshot.gauges.insert(gauge, value);
        self
    }

    /// Adds the delays.
    pub fn delay(mut self, histogram: &DelayHistogram) -> HopBuilder {
        let (counts, sum_us) = histogram.load();
        let bounds_us = DelayHistogram::BOUNDS_US.to_vec();
        self.snapshot.delay = Some(Delay { bounds_us, counts, sum_us });
        self
    }

    /// Ends with the second look at what was received, taken after every counter of what left, and holds the law against it.
    pub fn finish(self, received_after: Amount) -> HopSnapshot {
        let mut snapshot = self.snapshot;
        let left = snapshot.delivered + snapshot.dropped_total();
        snapshot.received = received_after;
        snapshot.in_flight = received_after.saturating_sub(left);

        let mut missing = left.count.saturating_sub(received_after.count) as i64;
        if missing == 0 && left.bytes > received_after.bytes {
            // The law holds in bytes too. How many datagrams are meant by too many bytes cannot be said.
            missing = 1;
        }

        // What was inside at the moment of the reading is at least the first look less what had left by then.
        let inside = self.received_before.count.saturating_sub(left.count);
        let excess = inside.saturating_sub(snapshot.capacity.unwrap_or(0)) as i64;

        snapshot.unaccounted = match (missing, excess) {
            (0, 0) => self.mismatch,
            (0, excess) => excess,
            (missing, _) => -missing,
        };
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(count: u64) -> Amount {
        Amount { count, bytes: count * 10 }
    }

    fn check(before: u64, left: u64, after: u64, in_flight: u64, unaccounted: i64) {
        let hop = HopBuilder::new(HopKind::Target, "l", Some("t"), amount(before))
            .delivered(amount(left))
            .capacity(10)
            .finish(amount(after));
        assert_eq!((hop.in_flight.count, hop.unaccounted), (in_flight, unaccounted));
    }

    #[test]
    fn at_rest() {
        check(5, 5, 5, 0, 0);
    }

    #[test]
    fn ten_inside_fit() {
        check(15, 5, 15, 10, 0);
    }

    #[test]
    fn a_slow_reader_sees_more_inside_but_no_violation() {
        check(15, 5, 500, 495, 0);
    }

    #[test]
    fn eleven_inside_do_not_fit() {
        check(16, 5, 16, 11, 1);
    }

    #[test]
    fn an_independent_count_that_differs_is_a_violation() {
        let hop = HopBuilder::new(HopKind::Target, "l", Some("t"), amount(9))
            .delivered(amount(8))
            .capacity(10)
            .mismatch(1)
            .finish(amount(9));
        assert_eq!((hop.in_flight.count, hop.unaccounted), (1, 1));
    }

    #[test]
    fn more_left_than_entered() {
        check(4, 5, 4, 0, -1);
    }
}
