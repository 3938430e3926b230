//! Who this process is, and what it may do.

use std::fs;

/// Effective capabilities of the calling thread as a bit set (`CapEff` of `/proc/thread-self/status`, capabilities(7)).
pub fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Bit of `CAP_NET_BIND_SERVICE` (linux/capability.h): ports below 1,024.
pub const CAP_NET_BIND_SERVICE: u32 = 10;
/// Bit of `CAP_NET_ADMIN`: receive buffers beyond `net.core.rmem_max`.
pub const CAP_NET_ADMIN: u32 = 12;

/// The effective user id.
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Number of processors this process may run on, at least 1.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
