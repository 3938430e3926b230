//! Clocks in nanoseconds.

use std::collections::VecDeque;
use std::time::Duration;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec. The clocks used here exist on every Linux, so that it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since boot, not counting suspension; never steps.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since boot, counting suspension; never steps. Start times in `/proc` use this clock.
pub fn boottime_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds since 1970-01-01 UTC; steps when the clock is set.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time of this process in nanoseconds, user and system.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread in nanoseconds, user and system.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// How often a [`Clock`] compares its two clocks.
const COMPARE_INTERVAL_NS: u64 = 100_000_000;

/// Reads both clocks for the price of one: the offset between them is refreshed ten times a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    distance_ns: u64,
    compare_due_ns: u64,
}

/// One moment, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// Same as [`monotonic_ns`].
    pub monotonic_ns: u64,
    /// Same as [`realtime_ns`], except that a step of the clock shows up to a tenth of a second late.
    pub realtime_ns: u64,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Now {
        Now { monotonic_ns: monotonic_ns(), realtime_ns: realtime_ns() }
    }
}

impl Clock {
    /// Reads both clocks.
    pub fn now(&mut self) -> Now {
        let monotonic_ns = monotonic_ns();
        if monotonic_ns >= self.compare_due_ns {
            self.compare_due_ns = monotonic_ns + COMPARE_INTERVAL_NS;
            self.distance_ns = realtime_ns().wrapping_sub(monotonic_ns);
        }
        Now { monotonic_ns, realtime_ns: monotonic_ns.wrapping_add(self.distance_ns) }
    }

    /// What the wall clock said, as far as it is known now, when the monotonic clock said `monotonic_ns`. Reads the clocks ten
    /// times a second at most.
    pub fn realtime_of(&mut self, monotonic_ns: u64) -> u64 {
        if monotonic_ns >= self.compare_due_ns {
            self.now();
        }
        monotonic_ns.wrapping_add(self.distance_ns)
    }
}

/// A wall clock that differs from a steady clock by this much more or less than a moment ago was set: slewing takes 2,000 s for
/// a second (adjtimex(2)).
const STEP_NS: i64 = 1_000_000_000;

/// Notices that the wall clock was set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// How far the wall clock was ahead of the steady one.
    ahead_ns: Option<i64>,
}

impl Steps {
    /// By how much the wall clock was set since the last call, in nanoseconds; 0 if it was not. `steady_ns` is the time of any
    /// clock that never steps.
    pub fn note(&mut self, unix_ns: u64, steady_ns: u64) -> i64 {
        let ahead_ns = unix_ns.wrapping_sub(steady_ns).cast_signed();
        let former_ns = self.ahead_ns.replace(ahead_ns).unwrap_or(ahead_ns);
        let step_ns = ahead_ns.wrapping_sub(former_ns);
        if step_ns.abs() < STEP_NS { 0 } else { step_ns }
    }
}

/// Most settings of the wall clock that [`Ages`] remembers.
const EPOCHS_MAX: usize = 16;

/// The ages of what was stamped with this host's wall clock, whatever that is set to while this process runs.
#[derive(Clone, Debug, Default)]
pub struct Ages {
    steps: Steps,
    now_unix_ns: u64,
    /// The times before each setting of the wall clock.
    epochs: VecDeque<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// What the clock said last before it was set. What was stamped later was not stamped then.
    last_unix_ns: u64,
    /// How much was added to the clock since then.
    shift_ns: i64,
}

impl Ages {
    /// Reads the time. Call it at least once a second: what is stamped between a setting of the clock and this call counts by the
    /// new clock.
    pub fn note(&mut self, unix_ns: u64, steady_ns: u64) {
        let step_ns = self.steps.note(unix_ns, steady_ns);
        if step_ns != 0 {
            for epoch in &mut self.epochs {
                epoch.shift_ns = epoch.shift_ns.saturating_add(step_ns);
            }
            if self.epochs.len() == EPOCHS_MAX {
                self.epochs.pop_front();
            }
            // The clock may have been set at any moment since the last call.
            let last_unix_ns = unix_ns.saturating_add_signed(step_ns.saturating_neg());
            self.epochs.push_back(Epoch { last_unix_ns, shift_ns: step_ns });
        }
        self.now_unix_ns = unix_ns;
    }

    /// The age of what was stamped with this time; zero if that is in the future. Of two possible ages it is the younger one, where
    /// the clock said the same time twice: what is kept too long can still go.
    pub fn age(&self, unix_ns: u64) -> Duration {
        let stamped = |epoch: &&Epoch| unix_ns <= epoch.last_unix_ns;
        let shifted = |epoch: &Epoch| unix_ns.saturating_add_signed(epoch.shift_ns);
        let by_epoch = self.epochs.iter().filter(stamped).map(shifted);
        let newest = by_epoch
            .chain(Some(unix_ns))
            .filter(|time| *time <= self.now_unix_ns)
            .max()
            .unwrap_or(self.now_unix_ns);
        Duration::from_nanos(self.now_unix_ns - newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_are_read_at_once() {
        let mut clock = Clock::default();
        for _ in 0..1_000 {
            let before = (monotonic_ns(), realtime_ns());
            let now = clock.now();
            assert!(before.0 <= now.monotonic_ns && now.monotonic_ns <= monotonic_ns());
            // The two clocks run at the same rate except for what NTP slews: at most 500 ppm (clock_adjtime(2)).
            assert!(before.1 <= now.realtime_ns + 50_000 + 1_000_000);
            assert!(now.realtime_ns <= realtime_ns() + 50_000);
        }
    }

    const SECOND_NS: u64 = 1_000_000_000;
    const HOUR_NS: u64 = 3_600 * SECOND_NS;
    const YEARS_NS: u64 = 50 * 365 * 24 * HOUR_NS;

    #[test]
    fn a_setting_of_the_wall_clock_is_noticed_and_slewing_is_not() {
        let mut steps = Steps::default();
        assert_eq!(steps.note(5, 1_000), 0, "the first reading");
        assert_eq!(steps.note(5 + SECOND_NS + 500_000, 1_000 + SECOND_NS), 0, "500 ppm");
        let at = 5 + 2 * SECOND_NS;
        assert_eq!(steps.note(at + HOUR_NS, 1_000 + 2 * SECOND_NS), (HOUR_NS - 500_000) as i64);
        assert_eq!(steps.note(at, 1_000 + 2 * SECOND_NS), -(HOUR_NS as i64));
        assert_eq!(steps.note(at + SECOND_NS, 1_000 + 3 * SECOND_NS), 0);
    }

    /// Notes a wall clock that was set, and checks the age of what was stamped before and after.
    fn check_ages(begin_unix_ns: u64, step_ns: i64) {
        let mut ages = Ages::default();
        let seconds = |count: u64| Duration::from_secs(count);
        ages.note(begin_unix_ns, 0);
        ages.note(begin_unix_ns + 10 * SECOND_NS, 10 * SECOND_NS);
        let before = begin_unix_ns + 4 * SECOND_NS;
        assert_eq!(ages.age(before), seconds(6));

        let now = (begin_unix_ns + 11 * SECOND_NS).saturating_add_signed(step_ns);
        ages.note(now, 11 * SECOND_NS);
        assert_eq!(ages.age(before), seconds(7), "{step_ns}");
        assert_eq!(ages.age(now), seconds(0));
        ages.note(now + 30 * SECOND_NS, 41 * SECOND_NS);
        assert_eq!(ages.age(before), seconds(37), "{step_ns}");
        assert_eq!(ages.age(now), seconds(30));
    }

    #[test]
    fn an_age_does_not_change_with_the_wall_clock() {
        for step_ns in [HOUR_NS as i64, -(HOUR_NS as i64), YEARS_NS as i64] {
            check_ages(YEARS_NS, step_ns);
        }
        // A host without a clock of its own.
        check_ages(0, YEARS_NS as i64);
    }

    #[test]
    fn many_settings_of_the_wall_clock_add_up() {
        let (mut ages, mut now) = (Ages::default(), 0);
        for count in 0..10 {
            now += HOUR_NS;
            ages.note(now, count * SECOND_NS);
        }
        assert_eq!(ages.age(HOUR_NS), Duration::from_secs(9));
        assert_eq!(ages.age(5 * HOUR_NS), Duration::from_secs(5));
    }

    #[test]
    fn what_an_earlier_process_stamped_has_the_age_that_the_clock_said_at_the_start() {
        let mut ages = Ages::default();
        ages.note(2 * YEARS_NS, 7);
        assert_eq!(ages.age(2 * YEARS_NS - HOUR_NS), Duration::from_secs(3_600));
        assert_eq!(ages.age(2 * YEARS_NS + HOUR_NS), Duration::ZERO, "of the future");
        ages.note(2 * YEARS_NS + HOUR_NS, 7);
        assert_eq!(ages.age(2 * YEARS_NS - HOUR_NS), Duration::from_secs(3_600));
        assert_eq!(ages.age(2 * YEARS_NS + HOUR_NS), Duration::ZERO);

        // A host without a clock of its own, before it knew the time: what it had kept is of the future until then.
        let mut ages = Ages::default();
        ages.note(0, 7);
        assert_eq!(ages.age(YEARS_NS), Duration::ZERO);
        ages.note(YEARS_NS + HOUR_NS, 7);
        assert_eq!(ages.age(YEARS_NS), Duration::from_secs(3_600));
    }
}
