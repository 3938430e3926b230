use super::{Options, Rate};
use crate::generate::Sizes;
use crate::random::Random;
use std::time::Duration;

/// One slot of a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Size of the datagram in bytes.
    pub(super) size: usize,
    /// When it is due, on the monotonic clock; 0 for unpaced runs.
    pub(super) due_ns: u64,
}

/// The absolute schedule of one sender: slot times are computed from the start and the slots before, never from when
/// the last one was actually sent.
pub(super) struct Schedule {
    start_ns: u64,
    pace: Pace,
    /// Datagrams, or bits, of all slots so far.
    spent: u64,
    sizes: Sizes,
    random: Random,
    burst: u64,
    burst_left: u64,
    burst_due_ns: u64,
    slots_all: u64,
    slots_left: u64,
    end_ns: Option<u64>,
    next: Option<Slot>,
}

#[derive(Clone, Copy)]
enum Pace {
    Datagrams { per_sec: u64, senders: u64, offset: u64 },
    Bits { per_sec: u64, senders: u64 },
    Unpaced,
}

impl Schedule {
    /// The share of sender `idx` in the options' schedule.
    pub(super) fn new(options: &Options, run: u64, idx: usize, start_ns: u64) -> Schedule {
        let (senders, idx) = (options.senders as u64, idx as u64);
        let pace = match options.rate {
            Rate::DatagramsPerSec(per_sec) => Pace::Datagrams { per_sec, senders, offset: idx },
            Rate::BitsPerSec(per_sec) => Pace::Bits { per_sec, senders },
            Rate::Max => Pace::Unpaced,
        };

        let share = |count: u64| count / senders + u64::from(idx < count % senders);
        let duration_ns = options.limit.duration.map(|d| d.as_nanos() as u64);
        let slots_all = options.limit.count.map_or(u64::MAX, share);

        Schedule {
            start_ns,
            pace,
            spent: 0,
            sizes: options.sizes.clone(),
            random: Random::seeded(run ^ idx.wrapping_mul(0xd134_2543_de82_ef95)),
            burst: options.burst,
            burst_left: 0,
            burst_due_ns: 0,
            slots_all,
            slots_left: slots_all,
            end_ns: duration_ns.map(|ns| start_ns.saturating_add(ns)),
            next: None,
        }
    }

    /// The next slot, which stays the same until [`advance`](Self::advance). `None` when the schedule is over. Unpaced
    /// schedules do not know when their time is over; use [`halt_ns`](Self::halt_ns).
    pub(super) fn peek(&mut self) -> Option<Slot> {
        if self.next.is_none() && self.slots_left > 0 {
            let size = self.sizes.draw(&mut self.random);
            if self.burst_left == 0 {
                self.burst_left = self.burst;
                self.burst_due_ns = self.due_ns();
            }
            self.next = Some(Slot { size, due_ns: self.burst_due_ns });
        }
        self.next.filter(|slot| self.end_ns.is_none_or(|end_ns| slot.due_ns < end_ns))
    }

    /// Consumes the slot returned by [`peek`](Self::peek).
    pub(super) fn advance(&mut self) {
        let Some(slot) = self.next.take() else { return };
        self.spent += match self.pace {
            Pace::Bits { .. } => slot.size as u64 * 8,
            _ => 1,
        };
        self.burst_left -= 1;
        self.slots_left -= 1;
    }

    /// Slots that were due before `now_ns` and the end, less the finished ones. 0 for schedules without due times:
    /// unpaced, or paced by bits.
    pub(super) fn slots_behind(&self, now_ns: u64, done: u64) -> u64 {
        let Pace::Datagrams { per_sec, senders, .. } = self.pace else { return 0 };
        let until_ns = self.end_ns.map_or(now_ns, |end_ns| end_ns.min(now_ns));
        let elapsed_ns = u128::from(until_ns.saturating_sub(self.start_ns));
        let due = elapsed_ns * u128::from(per_sec) / u128::from(senders) / 1_000_000_000;
        (due as u64).min(self.slots_all).saturating_sub(done)
    }

    /// When to stop, however many slots are left: a paced schedule allows some grace for late slots.
    pub(super) fn halt_ns(&self, grace: Duration) -> Option<u64> {
        let grace_ns = match self.pace {
            Pace::Unpaced => 0,
            _ => grace.as_nanos() as u64,
        };
        self.end_ns.map(|end_ns| end_ns.saturating_add(grace_ns))
    }

    fn due_ns(&self) -> u64 {
        let (numerator, per_sec) = match self.pace {
            Pace::Datagrams { per_sec, senders, offset } => {
                (u128::from(self.spent) * u128::from(senders) + u128::from(offset), per_sec)
            }
            Pace::Bits { per_sec, senders } => {
                (u128::from(self.spent) * u128::from(senders), per_sec)
            }
            Pace::Unpaced => return 0,
        };
        self.start_ns + (numerator * 1_000_000_000 / u128::from(per_sec)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Limit;

    fn due(options: &Options, idx: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(options, 1, idx, 0);
        std::iter::from_fn(|| {
            let slot = schedule.peek()?;
            schedule.advance();
            Some(slot.due_ns)
        })
        .collect()
    }

    fn options(rate: Rate, count: Option<u64>, duration_ms: Option<u64>) -> Options {
        let limit = Limit { count, duration: duration_ms.map(Duration::from_millis) };
        Options { rate, limit, ..Options::to(Vec::new()) }
    }

    #[test]
    fn a_duration_is_an_exact_number_of_slots() {
        let slots = due(&options(Rate::DatagramsPerSec(3_000), None, Some(1_000)), 0);
        assert_eq!(slots.len(), 3_000);
        assert_eq!(slots[..4], [0, 333_333, 666_666, 1_000_000]);
    }

    #[test]
    fn bits_are_payload_bits() {
        // 200 bytes are 1,600 bits.
        let slots = due(&options(Rate::BitsPerSec(1_600_000), None, Some(100)), 0);
        assert_eq!(slots.len(), 100);
        assert_eq!(slots[1], 1_000_000);
    }

    #[test]
    fn bursts_keep_the_average_rate() {
        let bursts = Options { burst: 10, ..options(Rate::DatagramsPerSec(1_000), Some(30), None) };
        let slots = due(&bursts, 0);
        assert_eq!(
            (slots[9], slots[10], slots[19], slots[20]),
            (0, 10_000_000, 10_000_000, 20_000_000)
        );
    }

    #[test]
    fn senders_interleave_and_share_the_count() {
        let two = Options {
            senders: 2,
            flows: 2,
            ..options(Rate::DatagramsPerSec(1_000), Some(5), None)
        };
        assert_eq!(due(&two, 0), [0, 2_000_000, 4_000_000]);
        assert_eq!(due(&two, 1), [1_000_000, 3_000_000]);
    }

    #[test]
    fn mixed_sizes_follow_their_weights() {
        let sizes = Sizes::Mixed(vec![(64, 7), (576, 4), (1_500, 1)]);
        let mut random = Random::seeded(1);
        let drawn: Vec<_> = (0..12_000).map(|_| sizes.draw(&mut random)).collect();
        for (size, share) in [(64, 7_000), (576, 4_000), (1_500, 1_000)] {
            let count = drawn.iter().filter(|drawn| **drawn == size).count();
            assert!(count.abs_diff(share) < 200, "{size}: {count}");
        }
    }
}
