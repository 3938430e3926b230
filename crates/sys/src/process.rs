//! Who this process is, what it may do, and what it has used.

mod capability;
mod limits;
mod others;
mod parent;
mod threads;

pub use capability::{
    CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_BROADCAST, CAP_NET_RAW,
    CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN, CAP_SYS_PTRACE, become_user, capability_name,
    capability_set, effective_capabilities, keep_capabilities,
};
pub use limits::{
    close_descriptors_from, forbid_growing_files, limit_cpu_seconds, limit_descriptors,
    limit_more_memory,
};
pub use others::{send_signal, started};
pub use parent::{die_with_parent, die_with_this_thread};
pub use threads::{thread_id, waited_ns};

use crate::Errno;
use crate::errno::check;
use std::fs;
use std::io;

/// The effective user id.
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The user id shown for users that a user namespace does not map (user_namespaces(7), `/proc/sys/kernel/overflowuid`). `None`
/// where every user is mapped, as outside containers.
pub fn overflow_uid() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if is_whole_uid_map(&map) {
        return None;
    }
    let uid = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    uid.and_then(|uid| uid.trim().parse().ok()).or(Some(65_534))
}

/// Whether a user namespace's map covers every user: one range from 0 with all ids except the last, which is not a valid id.
fn is_whole_uid_map(map: &str) -> bool {
    let mut lines = map.lines().map(|line| line.split_ascii_whitespace());
    let first: Option<Vec<&str>> = lines.next().map(Iterator::collect);
    matches!(first.as_deref(), Some(["0", "0", "4294967295"])) && lines.next().is_none()
}

/// Number of CPUs this process may run on, at least 1.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Gives the calling thread, and the threads it starts afterwards, a smaller share of a busy CPU: about a tenth of what a
/// thread at normal priority gets (`nice` 10). It is never starved, as it might be with `SCHED_IDLE`. Does nothing where a
/// seccomp filter forbids it.
pub fn lower_thread_priority() {
    // SAFETY: nice takes an integer. On Linux it applies to the calling thread alone (setpriority(2), C library/kernel
    // differences).
    unsafe { libc::nice(10) };
}

/// Prevents this thread, and anything it starts, from gaining privileges by running a program (`PR_SET_NO_NEW_PRIVS`).
///
/// # Errors
/// None since Linux 3.5.
pub fn forbid_new_privileges() -> Result<(), Errno> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Prevents processes without `CAP_SYS_PTRACE` from tracing this one or reading its memory and descriptors, and disables core
/// dumps (`PR_SET_DUMPABLE`). The process's files in `/proc` then belong to root, which can affect the process itself.
///
/// # Errors
/// None since Linux 2.4.
pub fn forbid_tracing() -> Result<(), Errno> {
    // SAFETY: PR_SET_DUMPABLE takes an integer.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Peak resident memory of this process, in bytes (`VmHWM` of `/proc/self/status`).
///
/// Not from `getrusage(2)`, whose figure starts with that of the process that started this one (fs/exec.c, exec_mmap).
pub fn peak_resident_bytes() -> Option<u64> {
    status_kib("VmHWM:").map(|kib| kib * 1_024)
}

/// Resident memory of this process, in bytes (`VmRSS` of `/proc/self/status`).
pub fn resident_bytes() -> Option<u64> {
    status_kib("VmRSS:").map(|kib| kib * 1_024)
}

fn status_kib(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The name of this host (`gethostname(2)`); in a container, the container's name. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// None in practice: names have at most 64 bytes (`HOST_NAME_MAX`).
pub fn host_name() -> io::Result<String> {
    let mut name = [0_u8; 65];
    // SAFETY: the kernel writes at most one byte less than the array holds, so the last one stays zero.
    check(unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) })?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The id of this boot, 36 characters (`/proc/sys/kernel/random/boot_id`). The same in every container of a host.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim_ascii().to_owned())
}

/// The kernel's release, as printed by `uname -r` (`/proc/sys/kernel/osrelease`).
///
/// # Errors
/// When `/proc` is not mounted.
pub fn kernel_release() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/osrelease").map(|release| release.trim_ascii().to_owned())
}

/// Raises the limit on open descriptors to the hard limit (`RLIMIT_NOFILE`, getrlimit(2)).
///
/// # Errors
/// Any of `setrlimit(2)`; the limit then stays as it was.
pub fn raise_open_files_limit() -> Result<(), Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads one `rlimit`.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_the_boot_have_names() {
        assert!(kernel_release().unwrap().contains('.'));
        let id = boot_id().unwrap();
        assert_eq!((id.len(), id.matches('-').count()), (36, 4), "{id}");
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(host_name().unwrap(), name.trim_end());
    }

    #[test]
    fn a_user_namespace_shows_by_its_map() {
        assert!(is_whole_uid_map("         0          0 4294967295\n"));
        for part in
            ["", "0 100000 65536\n", "0 1000 1\n", "0 0 4294967294\n", "0 0 1\n1 1 4294967294\n"]
        {
            assert!(!is_whole_uid_map(part), "{part}");
        }
    }

    #[test]
    fn a_lower_priority_is_that_of_one_thread() {
        let nice = |path: &str| {
            let stat = fs::read_to_string(path).unwrap();
            // proc(5): nice is the 19th field, the 17th after the name.
            stat.rsplit_once(')')
                .unwrap()
                .1
                .split_whitespace()
                .nth(16)
                .unwrap()
                .parse::<i32>()
                .unwrap()
        };
        let before = nice("/proc/thread-self/stat");
        let lowered = std::thread::spawn(move || {
            lower_thread_priority();
            nice("/proc/thread-self/stat")
        });
        assert_eq!(lowered.join().unwrap(), (before + 10).min(19));
        assert_eq!(nice("/proc/thread-self/stat"), before);
    }

    #[test]
    fn memory_that_was_used_shows_in_the_peak() {
        let before = peak_resident_bytes().unwrap();
        let used = std::hint::black_box(vec![1_u8; 32 << 20]);
        assert!(resident_bytes().unwrap() >= 32 << 20);
        drop(used);
        assert!(peak_resident_bytes().unwrap() >= before.max(32 << 20));
    }
}
