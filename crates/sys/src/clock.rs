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

/// Nanoseconds since boot, counting suspension; never steps. What start times in `/proc` count.
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
