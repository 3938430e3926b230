//! Who this process is, and what it may do.

use std::fs;

/// Effective capabilities of the calling thread as a bit set (`CapEff` of `/proc/thread-self/status`, capabilities(7)).
pub fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Bit of `CAP_DAC_READ_SEARCH` (linux/capability.h): opening files by handle.
pub const CAP_DAC_READ_SEARCH: u32 = 2;
/// Bit of `CAP_NET_BIND_SERVICE`: ports below 1,024.
pub const CAP_NET_BIND_SERVICE: u32 = 10;
/// Bit of `CAP_NET_BROADCAST`: hearing netlink groups of other namespaces.
pub const CAP_NET_BROADCAST: u32 = 11;
/// Bit of `CAP_NET_ADMIN`: receive buffers beyond `net.core.rmem_max`, namespace ids, socket marks.
pub const CAP_NET_ADMIN: u32 = 12;
/// Bit of `CAP_SYS_PTRACE`: seeing the namespaces of other users' processes.
pub const CAP_SYS_PTRACE: u32 = 19;
/// Bit of `CAP_SYS_ADMIN`: entering namespaces.
pub const CAP_SYS_ADMIN: u32 = 21;

/// Names by bit (linux/capability.h).
const CAPABILITY_NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// The name of a capability, `None` for a bit that has none up to Linux 6.18.
pub fn capability_name(bit: u32) -> Option<&'static str> {
    CAPABILITY_NAMES.get(usize::try_from(bit).ok()?).copied()
}

/// The effective user id.
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Number of processors this process may run on, at least 1.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
