//! Limits that the kernel keeps on what this process uses (getrlimit(2)), and descriptors it was started with.

use crate::Errno;
use crate::errno::check;
use std::fs;
use std::io;
use std::os::fd::RawFd;

/// The resources, as `setrlimit(2)` of this C library takes them.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Limits the memory of this process to that which it has now and `more_bytes` (`RLIMIT_AS`: address space, whether used or
/// not). An allocation beyond it fails.
///
/// # Errors
/// `/proc` is not mounted, or any of `setrlimit(2)`.
pub fn limit_more_memory(more_bytes: u64) -> io::Result<()> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split_ascii_whitespace().next().and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: sysconf takes an integer.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let now_bytes = pages.saturating_mul(u64::try_from(page_bytes).unwrap_or(4_096));
    Ok(limit(libc::RLIMIT_AS, now_bytes.saturating_add(more_bytes))?)
}

/// Limits the processor time of this process; it is killed beyond it (`RLIMIT_CPU`, whole seconds).
///
/// # Errors
/// Any of `setrlimit(2)`.
pub fn limit_cpu_seconds(seconds: u64) -> Result<(), Errno> {
    // The hard limit is a second more, for it kills without a signal of its own that says why (SIGXCPU).
    limit_between(libc::RLIMIT_CPU, seconds, seconds.saturating_add(1))
}

/// Keeps this process from making any file longer, and from leaving a core dump.
///
/// # Errors
/// Any of `setrlimit(2)`.
pub fn forbid_growing_files() -> Result<(), Errno> {
    limit(libc::RLIMIT_FSIZE, 0)?;
    limit(libc::RLIMIT_CORE, 0)
}

/// Limits the number of open descriptors (`RLIMIT_NOFILE`).
///
/// # Errors
/// Any of `setrlimit(2)`.
pub fn limit_descriptors(descriptors: u64) -> Result<(), Errno> {
    limit(libc::RLIMIT_NOFILE, descriptors)
}

fn limit(resource: Resource, value: u64) -> Result<(), Errno> {
    limit_between(resource, value, value)
}

fn limit_between(resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    // What was set before may be lower, and cannot be raised by everybody.
    let hard = hard.min(limit.rlim_max);
    let limit = libc::rlimit { rlim_cur: soft.min(hard), rlim_max: hard };
    // SAFETY: the kernel reads one `rlimit`.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }).map(drop)
}

/// Closes every descriptor from this number on, as a program that was started with more than it wants does before it opens any.
///
/// # Errors
/// `/proc` is not mounted, on kernels before Linux 5.9, which have no `close_range(2)`.
pub fn close_descriptors_from(first: RawFd) -> io::Result<()> {
    // SAFETY: the call takes numbers. Nothing of this process owns the descriptors, which the caller promises by calling it
    // before it opens any; a descriptor that is used after that fails with `EBADF`.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return Ok(());
    }
    let open = fs::read_dir("/proc/self/fd")?;
    let open: Vec<RawFd> =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd >= first) {
        // SAFETY: as above. The listing's own descriptor is closed already.
        unsafe { libc::close(fd) };
    }
    Ok(())
}
