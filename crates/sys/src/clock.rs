//! Clocks in nanoseconds.

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
}
