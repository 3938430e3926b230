//! Predicts the next batch from the last ones: how many datagrams, how long, and how soon.

use crate::target::RUN_BYTES_MAX;
use std::time::Duration;
use sys::recv::{BATCH, BUFFER_BYTES};

/// Maximum size of a batch, in bytes, beyond its first few datagrams: it is sent while it is still in the processor's
/// second-level cache.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// Minimum number of datagrams in a full batch, however long they are.
const BATCH_MIN: usize = 4;

/// Shorter datagrams are copied into the ring: that is cheaper than giving the kernel two buffers for each.
const IN_PLACE_BYTES_MIN: usize = 128;

/// Window over which the rate is measured.
const RATE_WINDOW_NS: u64 = 5_000_000;

/// A batch is a burst if it has more than this many times what a pause gathers.
const BURST: u64 = 4;

/// Minimum pause.
const PAUSE_MIN: Duration = Duration::from_micros(1);

/// Upper bound on the lateness learned from one pause.
const LATENESS_MAX: Duration = Duration::from_millis(1);

/// How to receive the next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// Datagrams to ask for.
    pub(crate) count: usize,
    /// Spacing of datagrams received straight into the ring. `None` when they are copied there.
    pub(crate) stride_bytes: Option<usize>,
    /// Expected maximum size of the batch, in bytes.
    pub(crate) bytes: usize,
}

/// What arrived lately.
pub(crate) struct Arrivals {
    /// Longest datagrams of the last batch and of the one before it, in bytes.
    longest_bytes: [usize; 2],
    /// Whether the last batch had about the same length throughout.
    is_even: bool,
    /// Maximum time to wait for a short batch to grow.
    gather: Option<Duration>,
    window_began_ns: u64,
    window_count: u64,
    /// Datagrams that a pause is likely to gather, judging by the last window. 0 when it would gather none.
    per_pause: u64,
    last_count: u64,
    /// Mean time by which pauses exceeded the time asked for.
    lateness: Duration,
}

impl Arrivals {
    pub(crate) fn new(gather: Option<Duration>) -> Arrivals {
        Arrivals {
            longest_bytes: [0; 2],
            is_even: false,
            gather,
            window_began_ns: 0,
            window_count: 0,
            per_pause: 0,
            last_count: 0,
            lateness: Duration::ZERO,
        }
    }

    /// Records the lengths of a batch.
    pub(crate) fn note(&mut self, lens: impl Iterator<Item = usize>) {
        let (mut count, mut total, mut longest) = (0, 0, 0);
        for len in lens {
            count += 1;
            total += len;
            longest = longest.max(len);
        }

        self.longest_bytes = [longest, self.longest_bytes[0]];
        // The mean is at least three quarters of the longest.
        self.is_even = total * 4 >= longest * count * 3;
        self.window_count += count as u64;
        self.last_count = count as u64;
    }

    pub(crate) fn plan(&self) -> Plan {
        let longest = self.longest_bytes[0].max(self.longest_bytes[1]);
        let mut count = (BATCH_BYTES_MAX / longest.max(1)).clamp(BATCH_MIN, BATCH);
        let in_place = self.is_even && (IN_PLACE_BYTES_MIN..=BUFFER_BYTES).contains(&longest);

        if in_place {
            // Whole runs only: a message for one leftover datagram costs as much as one for seven.
            let run = (RUN_BYTES_MAX / longest).clamp(1, count);
            count -= count % run;
        }

        Plan { count, stride_bytes: in_place.then_some(longest), bytes: count * longest }
    }

    /// How long to wait before receiving the next batch, if this one emptied the socket. `None` means not at all. At least one
    /// more datagram is likely to arrive meanwhile, and shares a wake-up and its calls.
    pub(crate) fn pause(&mut self, now_ns: u64) -> Option<Duration> {
        let gather = self.gather?;

        let elapsed_ns = now_ns.saturating_sub(self.window_began_ns);
        if elapsed_ns >= RATE_WINDOW_NS {
            let gather_ns = u64::try_from(gather.as_nanos()).unwrap_or(u64::MAX);
            self.per_pause = self.window_count.saturating_mul(gather_ns) / elapsed_ns;
            (self.window_began_ns, self.window_count) = (now_ns, 0);
        }

        // Many at once came as a burst, which needs no pause to gather: the next burst is not near.
        let is_burst = self.last_count > BURST * self.per_pause;
        let is_worth_it = self.per_pause > 0 && !is_burst;
        is_worth_it.then(|| gather.saturating_sub(self.lateness).max(PAUSE_MIN))
    }

    /// Records the actual length `was` of a pause of `wanted`. The next one is shortened by the mean lateness of pauses.
    pub(crate) fn paused(&mut self, wanted: Duration, was: Duration) {
        // A pause that was much too long means that other threads had the processor, not that wake-ups are that late.
        let late = was.saturating_sub(wanted).min(LATENESS_MAX);
        self.lateness = (self.lateness * 7 + late) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_after(batches: &[&[usize]]) -> (usize, Option<usize>) {
        let mut arrivals = Arrivals::new(None);
        batches.iter().for_each(|lens| arrivals.note(lens.iter().copied()));
        let plan = arrivals.plan();
        (plan.count, plan.stride_bytes)
    }

    #[test]
    fn equal_lengths_are_received_in_place_and_bounded_in_bytes() {
        assert_eq!(plan_after(&[]), (64, None));
        assert_eq!(plan_after(&[&[200; 64]]), (64, Some(200)));
        assert_eq!(plan_after(&[&[100; 64]]), (64, None));
        assert_eq!(plan_after(&[&[1_400; 64]]), (46, Some(1_400)));
        assert_eq!(plan_after(&[&[9_000; 28]]), (28, Some(9_000)));
        assert_eq!(plan_after(&[&[60_000]]), (4, Some(60_000)));
        assert_eq!(plan_after(&[&[9_000, 9_000, 9_000, 700]]), (28, Some(9_000)));
    }

    #[test]
    fn what_varies_is_copied() {
        assert_eq!(plan_after(&[&[64, 1_400, 64, 64]]), (64, None));
        assert_eq!(plan_after(&[&[60_000], &[0]]), (4, Some(60_000)));
    }

    fn pauses(per_sec: u64) -> bool {
        let mut arrivals = Arrivals::new(Some(Duration::from_micros(80)));
        let step_ns = 1_000_000_000 / per_sec;
        (0..per_sec).fold(false, |_, step| {
            arrivals.note([100].into_iter());
            arrivals.pause(step * step_ns).is_some()
        })
    }

    #[test]
    fn only_where_a_pause_gathers_several_there_is_one() {
        assert!(pauses(20_000) && pauses(300_000));
        assert!(!pauses(10_000) && !pauses(100));
    }

    #[test]
    fn a_pause_ends_in_time_although_wake_ups_are_late() {
        let late = Duration::from_micros(50);
        let mut arrivals = Arrivals::new(Some(Duration::from_micros(80)));
        arrivals.note([100; 400].into_iter());
        assert!(arrivals.pause(RATE_WINDOW_NS).is_none(), "a burst");
        arrivals.note([100].into_iter());
        for _ in 0..100 {
            let pause = arrivals.pause(RATE_WINDOW_NS + 1).unwrap();
            arrivals.paused(pause, pause + late);
        }
        let took = arrivals.pause(RATE_WINDOW_NS + 1).unwrap() + late;
        assert!(took.abs_diff(Duration::from_micros(80)) < Duration::from_micros(1), "{took:?}");
    }

    #[test]
    fn nobody_waits_who_was_not_asked_to() {
        let mut arrivals = Arrivals::new(None);
        arrivals.note([100; 64].into_iter());
        assert_eq!(arrivals.pause(1), None);
    }
}
