use crate::{Reason, RejectClass};
use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of datagrams (or records) and the bytes of their payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Datagrams or records.
    #[serde(with = "crate::decimal")]
    pub count: u64,
    /// Payload bytes.
    #[serde(with = "crate::decimal")]
    pub bytes: u64,
}

impl Amount {
    /// One datagram or record of `bytes` bytes.
    #[inline]
    pub fn one(bytes: usize) -> Amount {
        Amount { count: 1, bytes: bytes as u64 }
    }

    /// `self` minus `other`; zero where `other` is larger.
    pub fn saturating_sub(self, other: Amount) -> Amount {
        Amount {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Whether there is no datagram at all. Empty datagrams have no bytes but do count.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.count == 0
    }
}

impl Add for Amount {
    type Output = Amount;
    #[inline]
    fn add(self, other: Amount) -> Amount {
        Amount { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }
}

impl AddAssign for Amount {
    #[inline]
    fn add_assign(&mut self, other: Amount) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(amounts: I) -> Amount {
        amounts.fold(Amount::default(), Add::add)
    }
}

/// A counter of datagrams and bytes with a single writer thread.
#[derive(Debug, Default)]
pub struct Tally {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    /// Adds an amount. Only the thread that owns the counter may call this: it loads and stores, which is cheaper than
    /// an atomic addition and exact with a single writer.
    #[inline]
    pub fn add(&self, amount: Amount) {
        let count = self.count.load(Ordering::Relaxed) + amount.count;
        let bytes = self.bytes.load(Ordering::Relaxed) + amount.bytes;
        self.bytes.store(bytes, Ordering::Release);
        self.count.store(count, Ordering::Release);
    }

    /// Reads the counter. Everything that the writer did before the addition seen here is visible too.
    #[inline]
    pub fn load(&self) -> Amount {
        let count = self.count.load(Ordering::Acquire);
        let bytes = self.bytes.load(Ordering::Acquire);
        Amount { count, bytes }
    }
}

/// What one thread counts at one hop: what it let through and what it dropped, by reason.
///
/// Padded to two cache lines (the prefetcher fetches lines in pairs), so that two writers never share one.
#[derive(Debug)]
#[repr(align(128))]
pub struct Counters {
    /// What was delivered.
    pub delivered: Tally,
    dropped: [Tally; Reason::COUNT],
}

impl Default for Counters {
    fn default() -> Counters {
        // Not derived, because arrays of more than 32 elements have no `Default`.
        let dropped = std::array::from_fn(|_| Tally::default());
        Counters { delivered: Tally::default(), dropped }
    }
}

impl Counters {
    /// Counts a drop. Only the owner thread may call this.
    #[inline]
    pub fn drop(&self, reason: Reason, amount: Amount) {
        self.dropped[reason as usize].add(amount);
    }

    /// The amount dropped for this reason.
    pub fn dropped(&self, reason: Reason) -> Amount {
        self.dropped[reason as usize].load()
    }

    /// Every reason with drops, and its amount.
    pub fn drops(&self) -> impl Iterator<Item = (Reason, Amount)> {
        Reason::ALL
            .iter()
            .map(|&reason| (reason, self.dropped(reason)))
            .filter(|(_, amount)| !amount.is_zero())
    }
}

/// What one sink's thread counts: the outcomes that every hop has, and the three that only sinks have.
#[derive(Debug, Default)]
pub struct SinkCounters {
    /// What the destination acknowledged (`delivered`), and what was dropped.
    pub counters: Counters,
    rejected: [Tally; RejectClass::COUNT],
    uncertain: Tally,
    kept: Tally,
}

impl SinkCounters {
    /// Counts rows that the destination acknowledged. Only the owner thread may call this and the four functions
    /// below.
    pub fn acknowledge(&self, amount: Amount) {
        self.counters.delivered.add(amount);
    }

    /// Counts a drop.
    pub fn drop(&self, reason: Reason, amount: Amount) {
        self.counters.drop(reason, amount);
    }

    /// Counts rows that the destination refused permanently.
    pub fn reject(&self, class: RejectClass, amount: Amount) {
        self.rejected[class as usize].add(amount);
    }

    /// Counts rows that were sent and never acknowledged, once, at the end of their life: while they are retried they
    /// are in flight.
    pub fn uncertain(&self, amount: Amount) {
        self.uncertain.add(amount);
    }

    /// Counts rows that are still in the sink's spool when the sink ends. Its next life finds them there.
    pub fn keep(&self, amount: Amount) {
        self.kept.add(amount);
    }

    /// The amount rejected in this class.
    pub fn rejected(&self, class: RejectClass) -> Amount {
        self.rejected[class as usize].load()
    }

    /// Every class with rejects, and its amount.
    pub fn rejects(&self) -> impl Iterator<Item = (RejectClass, Amount)> {
        RejectClass::ALL
            .iter()
            .map(|&class| (class, self.rejected(class)))
            .filter(|(_, amount)| !amount.is_zero())
    }

    /// Everything that left, in any way.
    pub fn left(&self) -> Amount {
        let dropped: Amount = self.counters.drops().map(|(_, amount)| amount).sum();
        let rejected: Amount = self.rejects().map(|(_, amount)| amount).sum();
        let delivered = self.counters.delivered.load();
        delivered + dropped + rejected + self.uncertain.load() + self.kept.load()
    }

    /// Rows that were sent and never acknowledged.
    pub fn uncertain_total(&self) -> Amount {
        self.uncertain.load()
    }

    /// Rows left in the spool at the end.
    pub fn kept_total(&self) -> Amount {
        self.kept.load()
    }
}

/// A counter of events outside the law (attempts, retries, errors), with a single writer.
#[derive(Debug, Default)]
pub struct EventCounter(AtomicU64);

impl EventCounter {
    /// Adds to the counter. Only the owner thread may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Sets the value, for a gauge.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Reads the value.
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Histogram of the time from receive to send, with fixed buckets. One writer.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct DelayHistogram {
    buckets: [AtomicU64; DelayHistogram::BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl DelayHistogram {
    /// Upper bounds of the buckets in microseconds, inclusive. One more bucket holds longer delays.
    pub const BOUNDS_US: [u64; 16] = [
        50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
        1_000_000, 2_000_000, 5_000_000,
    ];

    /// Counts `count` datagrams with this delay. Only the owner thread may call this.
    #[inline]
    pub fn add(&self, delay_us: u64, count: u64) {
        let bucket = Self::BOUNDS_US.iter().take_while(|&&bound| bound < delay_us).count();
        let bump = |cell: &AtomicU64, n: u64| {
            cell.store(cell.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        };
        bump(&self.buckets[bucket], count);
        bump(&self.sum_us, delay_us.saturating_mul(count));
    }

    /// Datagrams in each bucket, including the one above all bounds, and the sum of all delays in microseconds.
    pub fn load(&self) -> (Vec<u64>, u64) {
        let buckets = self.buckets.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
        (buckets, self.sum_us.load(Ordering::Relaxed))
    }
}
