use super::{Accounting, Delay, Dropped, HopKind, HopSnapshot, Peer, Rejected, Trouble};
use crate::{Amount, Counters, DelayHistogram, Event, Gauge, Reason, SinkCounters};
use std::collections::BTreeMap;

/// Builds a [`HopSnapshot`] from counters read in the right order: what was received (a first look), what left, and what was
/// received again.
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
                rejected: Vec::new(),
                uncertain: Amount::default(),
                kept: Amount::default(),
                in_flight: Amount::default(),
                capacity: None,
                accounting: Accounting::Exact,
                unaccounted: 0,
                violations: 0,
                events: BTreeMap::new(),
                gauges: BTreeMap::new(),
                delay: None,
                trouble: None,
                peers: Vec::new(),
            },
            received_before,
            mismatch: 0,
        }
    }

    /// Sets the difference that the hop's owner found when it last compared the counters with an independent number, such as
    /// a cursor.
    pub fn mismatch(mut self, count: i64) -> HopBuilder {
        self.mismatch = count;
        self
    }

    /// Adds how often the hop's owner found, at the moment itself, that two of its own counts differ.
    pub fn violations(mut self, count: u64) -> HopBuilder {
        self.snapshot.violations += count;
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

    /// Adds the outcomes that a sink's thread counted.
    pub fn left_sink(mut self, sink: &SinkCounters) -> HopBuilder {
        for (class, amount) in sink.rejects() {
            self.snapshot.add_rejected(Rejected { class, amount });
        }
        self.snapshot.uncertain += sink.uncertain_total();
        self.snapshot.kept += sink.kept_total();
        self.left(&sink.counters)
    }

    /// Adds deliveries.
    pub fn delivered(mut self, amount: Amount) -> HopBuilder {
        self.snapshot.delivered += amount;
        self
    }

    /// Adds rows that were sent and never acknowledged.
    pub fn uncertain(mut self, amount: Amount) -> HopBuilder {
        self.snapshot.uncertain += amount;
        self
    }

    /// Adds drops.
    pub fn dropped(mut self, reason: Reason, amount: Amount) -> HopBuilder {
        match self.snapshot.dropped.iter_mut().find(|drop| drop.reason == reason) {
            Some(drop) => drop.amount += amount,
            None if amount.is_zero() => {}
            None => self.snapshot.dropped.push(Dropped { reason, amount }),
        }
        self
    }

    /// Everything that left, of what was added so far.
    pub fn left_so_far(&self) -> Amount {
        self.snapshot.left()
    }

    /// Sets how much can be inside.
    pub fn capacity(mut self, count: u64) -> HopBuilder {
        self.snapshot.capacity = Some(count);
        self
    }

    /// Sets how reliable the drop counts are.
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

    /// Adds the Weirs at the other end of a link.
    pub fn peers(mut self, peers: Vec<Peer>) -> HopBuilder {
        self.snapshot.peers = peers;
        self
    }

    /// What was delivered, of what was added so far.
    pub fn delivered_so_far(&self) -> Amount {
        self.snapshot.delivered
    }

    /// Sets what is wrong with the destination, if anything is.
    pub fn trouble(mut self, trouble: Option<Trouble>) -> HopBuilder {
        self.snapshot.trouble = trouble;
        self
    }

    /// Adds the delays.
    pub fn delay(mut self, histogram: &DelayHistogram) -> HopBuilder {
        let (counts, sum_us) = histogram.load();
        let bounds_us = DelayHistogram::BOUNDS_US.to_vec();
        self.snapshot.delay = Some(Delay { bounds_us, counts, sum_us });
        self
    }

    /// Ends with the second look at what was received, taken after every counter of what left, and checks the law.
    pub fn finish(self, received_after: Amount) -> HopSnapshot {
        let mut snapshot = self.snapshot;
        let left = snapshot.left();
        snapshot.received = received_after;
        snapshot.in_flight = received_after.saturating_sub(left);

        let mut missing = left.count.saturating_sub(received_after.count) as i64;
        if missing == 0 && left.bytes > received_after.bytes {
            // The law holds in bytes too. Excess bytes do not tell how many datagrams they belong to.
            missing = 1;
        }

        // At the time of reading, at least the first look less what had left by then was inside.
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
    use crate::RejectClass;

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

    /// A sink with room for 10 rows whose counters let these rows leave: acknowledged, dropped, rejected, uncertain, kept.
    fn sink(ways: [u64; 5], received: u64) -> HopSnapshot {
        let [acknowledged, dropped, rejected, uncertain, kept] = ways;
        let counters = SinkCounters::default();
        counters.acknowledge(amount(acknowledged));
        counters.drop(Reason::Expired, amount(dropped));
        counters.reject(RejectClass::Schema, amount(rejected));
        counters.uncertain(amount(uncertain));
        counters.keep(amount(kept));
        HopBuilder::new(HopKind::Sink, "sockets", Some("s"), amount(received))
            .left_sink(&counters)
            .capacity(10)
            .finish(amount(received))
    }

    #[test]
    fn every_way_out_of_a_sink_is_in_the_law() {
        let hop = sink([10, 20, 30, 20, 15], 100);
        assert_eq!((hop.in_flight, hop.unaccounted), (amount(5), 0));
        assert_eq!((hop.rejected_total(), hop.uncertain), (amount(30), amount(20)));
        assert_eq!(hop.kept, amount(15));
        assert_eq!(hop.rejected_with(RejectClass::Schema), amount(30));
        assert_eq!(hop.rejected_with(RejectClass::Other), amount(0));
    }

    #[test]
    fn a_way_out_that_was_not_counted_or_counted_twice_breaks_the_law() {
        let ways = [15, 20, 20, 20, 20];
        for way in 0..ways.len() {
            let (mut forgotten, mut doubled) = (ways, ways);
            forgotten[way] = 0;
            doubled[way] *= 2;
            assert_eq!(sink(forgotten, 100).unaccounted, ways[way] as i64 - 5, "{way}");
            assert_eq!(sink(doubled, 100).unaccounted, 5 - ways[way] as i64, "{way}");
        }
    }

    #[test]
    fn another_life_adds_its_rejected_and_uncertain_rows() {
        let mut hop = sink([1, 0, 2, 3, 4], 10);
        hop.absorb(&sink([0, 0, 10, 20, 30], 60));
        assert_eq!(
            (hop.rejected_with(RejectClass::Schema), hop.uncertain, hop.kept),
            (amount(12), amount(23), amount(34))
        );
        assert_eq!(hop.left(), hop.received);
    }
}
