//! Capabilities (capabilities(7)): which ones the calling thread has, and dropping them.

use crate::Errno;
use crate::errno::check;
use std::fs;
use std::ptr;

/// Effective capabilities of the calling thread as a bit set (`CapEff` of `/proc/thread-self/status`, capabilities(7)).
pub fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Bit of `CAP_DAC_READ_SEARCH` (linux/capability.h): opening files by handle.
pub const CAP_DAC_READ_SEARCH: u32 = 2;
/// Bit of `CAP_SETGID`: [`become_user`].
pub const CAP_SETGID: u32 = 6;
/// Bit of `CAP_SETUID`: [`become_user`].
pub const CAP_SETUID: u32 = 7;
/// Bit of `CAP_NET_BIND_SERVICE`: ports below 1,024.
pub const CAP_NET_BIND_SERVICE: u32 = 10;
/// Bit of `CAP_NET_BROADCAST`: receiving netlink groups of other namespaces.
pub const CAP_NET_BROADCAST: u32 = 11;
/// Bit of `CAP_NET_ADMIN`: receive buffers beyond `net.core.rmem_max`, namespace ids, socket marks.
pub const CAP_NET_ADMIN: u32 = 12;
/// Bit of `CAP_NET_RAW`: sending datagrams from foreign addresses.
pub const CAP_NET_RAW: u32 = 13;
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

/// The name of a capability; `None` for a bit that Linux 6.18 does not define.
pub fn capability_name(bit: u32) -> Option<&'static str> {
    CAPABILITY_NAMES.get(usize::try_from(bit).ok()?).copied()
}

/// A set of capabilities as bits.
pub const fn capability_set(bits: &[u32]) -> u64 {
    let (mut set, mut index) = (0, 0);
    while index < bits.len() {
        set |= 1 << bits[index];
        index += 1;
    }
    set
}

/// Drops every capability of the calling thread that is not in `keep`, and returns those it still has. Threads that it starts
/// afterwards have no more than that; threads already running keep theirs, so call it before starting the first.
///
/// The kept capabilities are permitted and effective. None is inheritable or ambient, so a program that this thread executes
/// gets none. The bounding set shrinks too where `CAP_SETPCAP` allows it; [`super::forbid_new_privileges`] has the same effect
/// and needs no capability.
///
/// # Errors
/// Any of `prctl(2)` or `capset(2)`; the thread may then have dropped only some of them.
pub fn keep_capabilities(keep: u64) -> Result<u64, Errno> {
    for bit in 0..64 {
        if keep & 1 << bit == 0 && is_in_bounding_set(bit) {
            match drop_from_bounding_set(bit) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    clear_ambient_set()?;

    let mut header = Header { version: VERSION_3, process: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: capget fills the two sets that version 3 has, and writes nothing but them and the header.
    let rc =
        unsafe { libc::syscall(libc::SYS_capget, ptr::from_mut(&mut header), sets.as_mut_ptr()) };
    check(rc as libc::c_int)?;

    for (set, keep) in sets.iter_mut().zip([keep as u32, (keep >> 32) as u32]) {
        set.permitted &= keep;
        set.effective = set.permitted;
        set.inheritable = 0;
    }

    // SAFETY: capset reads the two sets that version 3 has, and the header.
    let rc = unsafe { libc::syscall(libc::SYS_capset, ptr::from_mut(&mut header), sets.as_ptr()) };
    check(rc as libc::c_int)?;

    Ok(u64::from(sets[1].effective) << 32 | u64::from(sets[0].effective))
}

/// Becomes this user and group permanently, without supplementary groups, and keeps the permitted capabilities for
/// [`keep_capabilities`] to choose from; none is effective in between. Call it before starting the first thread.
///
/// # Errors
/// `EPERM` without `CAP_SETUID` and `CAP_SETGID`; any of `prctl(2)`, `setgroups(2)`, `setresgid(2)`, `setresuid(2)`.
pub fn become_user(uid: u32, gid: u32) -> Result<(), Errno> {
    // This must come first: otherwise the change of user would clear the permitted set (capabilities(7)).
    // SAFETY: PR_SET_KEEPCAPS takes an integer.
    check(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })?;
    // Groups before the user, because the new user has no capability to change them.
    // SAFETY: with a count of 0 the kernel reads nothing from the pointer.
    check(unsafe { libc::setgroups(0, ptr::null()) })?;
    // SAFETY: setresgid takes integers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: setresuid takes integers.
    check(unsafe { libc::setresuid(uid, uid, uid) }).map(drop)
}

/// `_LINUX_CAPABILITY_VERSION_3` (linux/capability.h).
const VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    process: libc::c_int,
}

/// `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn is_in_bounding_set(bit: libc::c_ulong) -> bool {
    // SAFETY: PR_CAPBSET_READ takes an integer; a bit that this kernel does not know gives EINVAL.
    (unsafe { libc::prctl(libc::PR_CAPBSET_READ, bit, 0, 0, 0) }) == 1
}

fn drop_from_bounding_set(bit: libc::c_ulong) -> Result<(), Errno> {
    // SAFETY: PR_CAPBSET_DROP takes an integer.
    check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, bit, 0, 0, 0) }).map(drop)
}

fn clear_ambient_set() -> Result<(), Errno> {
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: PR_CAP_AMBIENT takes integers.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn names_and_sets() {
        assert_eq!(capability_name(CAP_SYS_ADMIN), Some("CAP_SYS_ADMIN"));
        assert_eq!(capability_name(CAP_SYS_PTRACE), Some("CAP_SYS_PTRACE"));
        assert_eq!(capability_name(CAP_NET_BROADCAST), Some("CAP_NET_BROADCAST"));
        assert_eq!(capability_name(40), Some("CAP_CHECKPOINT_RESTORE"));
        assert_eq!((capability_name(41), capability_name(u32::MAX)), (None, None));
        assert_eq!(capability_set(&[]), 0);
        assert_eq!(capability_set(&[0, 12, 40]), 1 | 1 << 12 | 1 << 40);
    }

    #[test]
    fn what_is_not_kept_is_gone_from_every_set_of_the_thread() {
        let before = effective_capabilities().unwrap();
        let keep = capability_set(&[CAP_NET_ADMIN, CAP_SYS_ADMIN]);
        let (kept, status) = thread::spawn(move || {
            let kept = keep_capabilities(keep).unwrap();
            (kept, fs::read_to_string("/proc/thread-self/status").unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(kept, before & keep);
        for (name, value) in [("CapEff", kept), ("CapPrm", kept), ("CapInh", 0), ("CapAmb", 0)] {
            assert!(status.contains(&format!("{name}:\t{value:016x}\n")), "{name} in {status}");
        }
        let nothing = thread::spawn(|| (keep_capabilities(0), effective_capabilities()));
        assert_eq!(nothing.join().unwrap(), (Ok(0), Some(0)));
        assert_eq!(effective_capabilities(), Some(before));
    }
}
