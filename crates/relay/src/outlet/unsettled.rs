//! Tracks which of the datagrams handed over may still come back.

use ledger::Amount;

/// How long after the device has let go of a datagram a report about it may still be on its way, in nanoseconds. The kernel first
/// frees what waited for a dead neighbor, and then delivers its own ICMP message about it through the loopback device, which
/// takes microseconds on an idle processor. A neighbor takes three seconds to fail again.
const REPORT_DELAY_MAX_NS: u64 = 200_000_000;

/// The kernel keeps a datagram while it resolves the neighbor: three attempts, by default a second apart (`mcast_solicit`,
/// `retrans_time_ms`, net/ipv4/arp.c). What was handed over longer ago than this, in nanoseconds, has left.
const KEPT_MAX_NS: u64 = 5_000_000_000;

/// Time between two marks, in nanoseconds.
const MARK_INTERVAL_NS: u64 = 1_000_000_000;

/// Number of marks needed to cover the time that a datagram may be kept.
const MARKS: usize = (KEPT_MAX_NS / MARK_INTERVAL_NS) as usize + 1;

/// What was handed over and may still come back because the neighbor does not answer.
#[derive(Default)]
pub(super) struct Unsettled {
    /// Everything handed over.
    handed: Amount,
    /// How much of it will not come back, or already has.
    settled: Amount,
    /// A moment when nothing was outstanding.
    idle: Option<Idle>,
    /// The latest such moment after it.
    idle_again: Option<Idle>,
    /// Until this time, reports are about what was taken already: one failure causes many.
    taken_until_ns: u64,
    idle_last_ns: u64,
    /// What had been handed over at moments a second apart, oldest first.
    marks: [Option<Idle>; MARKS],
}

/// What preceded a moment when nothing was outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// Datagrams may have been kept so long that they were dropped instead of sent.
    LongBusy,
    Other,
}

/// What had been handed over at a moment when nothing was outstanding.
#[derive(Clone, Copy)]
struct Idle {
    handed: Amount,
    at_ns: u64,
}

impl Unsettled {
    /// Records that nothing is outstanding now. Call it often enough that silence is not mistaken for a wait.
    pub(super) fn note_idle(&mut self, now_ns: u64) -> Before {
        let before = if self.is_long_busy(now_ns) { Before::LongBusy } else { Before::Other };

        self.idle_last_ns = now_ns;
        self.settle(now_ns);

        let idle = Some(Idle { handed: self.handed, at_ns: now_ns });
        if self.idle.is_none() {
            self.idle = idle;
        } else {
            self.idle_again = idle;
        }

        before
    }

    /// Whether something has been outstanding for long.
    pub(super) fn is_long_busy(&self, now_ns: u64) -> bool {
        now_ns - self.idle_last_ns > REPORT_DELAY_MAX_NS && !self.is_empty()
    }

    /// Records that more was handed over.
    pub(super) fn hand_over(&mut self, amount: Amount, now_ns: u64) {
        let newest = self.marks.iter().flatten().next_back();
        if newest.is_none_or(|newest| newest.at_ns + MARK_INTERVAL_NS <= now_ns) {
            self.marks.rotate_left(1);
            self.marks[MARKS - 1] = Some(Idle { handed: self.handed, at_ns: now_ns });
        }
        self.handed += amount;
    }

    /// Settles what was not reported in time, and what was handed over too long ago to still be kept.
    fn settle(&mut self, now_ns: u64) {
        let is_old = |mark: &&Idle| mark.at_ns + KEPT_MAX_NS <= now_ns;
        let old = self.marks.iter().flatten().rev().find(is_old);
        if let Some(old) = old
            && old.handed.count > self.settled.count
        {
            self.settled = old.handed;
        }

        while let Some(idle) = self.idle
            && idle.at_ns + REPORT_DELAY_MAX_NS <= now_ns
        {
            if idle.handed.count > self.settled.count {
                self.settled = idle.handed;
            }
            self.idle = self.idle_again.take();
        }
    }

    /// Handles a report: settles everything, and returns what was not settled before.
    pub(super) fn take(&mut self, now_ns: u64) -> Amount {
        if now_ns < self.taken_until_ns {
            return Amount::default();
        }
        self.taken_until_ns = now_ns + REPORT_DELAY_MAX_NS;
        self.settle(now_ns);
        let rest = self.handed.saturating_sub(self.settled);
        (self.settled, self.idle, self.idle_again) = (self.handed, None, None);
        rest
    }

    /// Settles everything handed over before the last moment when nothing was outstanding, however recent: it has left.
    pub(super) fn settle_idle(&mut self) {
        if let Some(idle) = self.idle_again.take().or(self.idle.take())
            && idle.handed.count > self.settled.count
        {
            self.settled = idle.handed;
        }
        self.idle = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.handed == self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: u64 = REPORT_DELAY_MAX_NS;

    fn handed(unsettled: &mut Unsettled, count: u64) {
        let now_ns = unsettled.idle_last_ns;
        unsettled.hand_over(Amount { count, bytes: count * 10 }, now_ns);
    }

    #[test]
    fn a_report_that_comes_after_the_queue_was_let_go_is_about_all_that_was_in_it() {
        let mut unsettled = Unsettled::default();
        unsettled.note_idle(0);
        handed(&mut unsettled, 100);
        // Three seconds later the neighbor has failed: nothing is outstanding, more is sent, and then the report comes.
        assert_eq!(unsettled.note_idle(15 * LATER), Before::LongBusy);
        handed(&mut unsettled, 1);
        assert_eq!(unsettled.take(15 * LATER + 1), Amount { count: 101, bytes: 1_010 });
        assert!(unsettled.is_empty());
        // The second report of the same failure is not about what waits for the next attempt.
        handed(&mut unsettled, 7);
        assert!(unsettled.take(15 * LATER + 2).is_zero());
        assert_eq!(unsettled.take(30 * LATER).count, 7);
    }

    #[test]
    fn what_has_left_long_ago_is_not_given_back() {
        let mut unsettled = Unsettled::default();
        for step in 0..1_000 {
            assert_eq!(unsettled.note_idle(step * LATER / 100), Before::Other);
            handed(&mut unsettled, 1);
        }
        // The last one met a dead neighbor.
        assert_eq!(unsettled.take(30 * LATER).count, 1);
    }

    #[test]
    fn it_is_empty_when_no_report_can_come() {
        let mut unsettled = Unsettled::default();
        handed(&mut unsettled, 5);
        unsettled.note_idle(7);
        assert!(!unsettled.is_empty());
        unsettled.note_idle(7 + LATER);
        assert!(unsettled.is_empty());
        assert_eq!(unsettled.take(8 + LATER).count, 0);
    }

    #[test]
    fn a_device_that_is_never_idle_does_not_make_all_of_the_past_unsettled() {
        let mut unsettled = Unsettled::default();
        let second = 1_000_000_000;
        for at in 0..100 {
            unsettled.hand_over(Amount { count: 10, bytes: 100 }, at * second);
        }
        let lost = unsettled.take(100 * second);
        assert!((50..=60).contains(&lost.count), "{lost:?}");
    }
}
