//! Restricting system calls (seccomp(2)): a compromised process can do no more than its list allows.

use crate::Errno;
use crate::netlink::Protocol;
use libc::c_long;
use std::ptr;

/// A group of related system calls. Lists are made of groups, so that they say what a process does and hold for either C library.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Allowed with any arguments.
    plain: &'static [c_long],
    /// Allowed with certain arguments.
    checked: &'static [Checked],
}

/// A call that is allowed only with certain argument values, all of which must match. Only the lower 32 bits are compared: the
/// kernel uses no more of an `int`.
#[derive(Clone, Copy, Debug)]
struct Checked {
    number: c_long,
    /// Argument indexes from 0, and the allowed values.
    arguments: &'static [(u32, Allowed)],
}

#[derive(Clone, Copy, Debug)]
enum Allowed {
    /// One of these values.
    OneOf(&'static [u32]),
    /// Values with none of these bits.
    Without(u32),
}

const fn plain(numbers: &'static [c_long]) -> Calls {
    Calls { plain: numbers, checked: &[] }
}

/// What happens to a call that is not on the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    /// It fails with `EPERM`.
    Refuse,
    /// The process is killed (`SIGSYS`), which the kernel's audit log shows.
    Kill,
}

impl Calls {
    /// What every program needs to keep running: memory, time, signals, waiting, open descriptors, exiting.
    pub const RUN: Calls = plain(&[
        libc::SYS_brk,
        libc::SYS_clock_getres,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_close,
        libc::SYS_dup,
        libc::SYS_epoll_create1,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_pwait,
        libc::SYS_eventfd2,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_fcntl,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_getrusage,
        libc::SYS_gettid,
        libc::SYS_lseek,
        libc::SYS_madvise,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_nanosleep,
        libc::SYS_ppoll,
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_sigaltstack,
        // abort(3) with glibc and with musl.
        libc::SYS_tgkill,
        libc::SYS_tkill,
        libc::SYS_write,
        libc::SYS_writev,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
    ]);

    /// Sending and receiving on open sockets, descriptors included, and querying them.
    pub const MESSAGES: Calls = plain(&[
        libc::SYS_accept4,
        libc::SYS_getpeername,
        libc::SYS_getsockname,
        libc::SYS_getsockopt,
        libc::SYS_recvfrom,
        libc::SYS_recvmmsg,
        libc::SYS_recvmsg,
        libc::SYS_sendmmsg,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_setsockopt,
        libc::SYS_shutdown,
    ]);

    /// Opening sockets and binding or connecting them.
    pub const OPEN_SOCKETS: Calls = plain(&[
        libc::SYS_bind,
        libc::SYS_connect,
        libc::SYS_listen,
        libc::SYS_socket,
        libc::SYS_socketpair,
    ]);

    /// Opening netlink sockets of the protocols in [`crate::netlink::Protocol`] and no others: not those of the firewall, IPsec
    /// or the audit log.
    pub const OPEN_NETLINK: Calls = Calls {
        plain: &[libc::SYS_bind],
        checked: &[Checked {
            number: libc::SYS_socket,
            arguments: &[
                (0, Allowed::OneOf(&[libc::AF_NETLINK.unsigned_abs()])),
                (2, Allowed::OneOf(&NETLINK_PROTOCOLS)),
            ],
        }],
    };

    /// Opening files and directories for reading, and reading their metadata. A filter cannot see paths, but it can see the
    /// flags.
    pub const READ_FILES: Calls = Calls {
        plain: &[
            libc::SYS_fstat,
            libc::SYS_fstatfs,
            libc::SYS_getdents64,
            libc::SYS_newfstatat,
            libc::SYS_pread64,
            libc::SYS_readlinkat,
            libc::SYS_statx,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lstat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_readlink,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat,
        ],
        checked: &[
            Checked {
                number: libc::SYS_openat,
                arguments: &[(2, Allowed::Without(WRITING_FLAGS))],
            },
            #[cfg(target_arch = "x86_64")]
            Checked { number: libc::SYS_open, arguments: &[(1, Allowed::Without(WRITING_FLAGS))] },
        ],
    };

    /// Opening files and directories and reading their metadata. Does not check whether a file is opened for writing;
    /// [`Self::READ_FILES`] does.
    pub const OPEN_FILES: Calls = plain(&[
        libc::SYS_fstat,
        libc::SYS_fstatfs,
        libc::SYS_getdents64,
        libc::SYS_newfstatat,
        libc::SYS_openat,
        libc::SYS_pread64,
        libc::SYS_readlinkat,
        libc::SYS_statx,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lstat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_readlink,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat,
    ]);

    /// Entering network namespaces ([`crate::namespace::Home`]), but not other kinds, such as mount or user namespaces.
    pub const ENTER_NAMESPACES: Calls = Calls {
        plain: &[],
        checked: &[Checked {
            number: libc::SYS_setns,
            arguments: &[(1, Allowed::OneOf(&[libc::CLONE_NEWNET.unsigned_abs()]))],
        }],
    };

    /// Creating the kernel's datagram counter ([`crate::gro::Counter::make`]): maps and programs, and nothing else of bpf(2).
    pub const COUNT_DATAGRAMS: Calls = Calls {
        plain: &[],
        checked: &[Checked {
            number: libc::SYS_bpf,
            arguments: &[(0, Allowed::OneOf(&crate::gro::COMMANDS))],
        }],
    };
}

/// Flags of `open(2)` that write, create or truncate a file. `O_TMPFILE` includes `O_DIRECTORY`, which is harmless by itself.
const WRITING_FLAGS: u32 = (libc::O_WRONLY
    | libc::O_RDWR
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | (libc::O_TMPFILE & !libc::O_DIRECTORY))
    .unsigned_abs();

const NETLINK_PROTOCOLS: [u32; 2] =
    [Protocol::Route.number().unsigned_abs(), Protocol::SockDiag.number().unsigned_abs()];

/// Permanently restricts every thread of this process to these calls, and forbids new privileges.
///
/// Calls of another architecture (32-bit programs) kill the process.
///
/// # Errors
/// `ENOSYS` on processors other than x86-64 and AArch64, or when the kernel was built without seccomp; `EBUSY` when a thread has
/// a filter of its own; `E2BIG` above 2,000 calls.
pub fn allow_only(groups: &[Calls], otherwise: Otherwise) -> Result<(), Errno> {
    let mut program = program(groups, otherwise).ok_or(Errno(libc::ENOSYS))?;

    let len = u16::try_from(program.len())
        .ok()
        .filter(|len| *len <= BPF_MAXINSNS)
        .ok_or(Errno(libc::E2BIG))?;

    // Without it, the kernel accepts a filter only from processes with CAP_SYS_ADMIN (seccomp(2)).
    crate::process::forbid_new_privileges()?;

    let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads `filter` and the program that it points at, which outlive the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            ptr::from_ref(&filter),
        )
    };

    match rc {
        0 => Ok(()),
        -1 => Err(Errno::last()),
        // A positive result is the id of a thread that could not be synchronized.
        _ => Err(Errno(libc::EBUSY)),
    }
}

/// `AUDIT_ARCH_X86_64` (linux/audit.h).
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
/// `AUDIT_ARCH_AARCH64`.
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// include/uapi/linux/bpf_common.h.
const BPF_MAXINSNS: u16 = 4_096;
/// Offsets in `struct seccomp_data` (linux/seccomp.h).
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
/// Offset of the first argument's lower half; both architectures above are little-endian.
const OFFSET_ARGUMENTS: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;

/// Compares the call number with each one on the list. Calls of the x32 variant have bit 30 set in their number and are on no
/// list.
fn program(groups: &[Calls], otherwise: Otherwise) -> Option<Vec<libc::sock_filter>> {
    let otherwise = match otherwise {
        Otherwise::Refuse => libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(),
        Otherwise::Kill => libc::SECCOMP_RET_KILL_PROCESS,
    };

    let mut program = vec![
        load(OFFSET_ARCHITECTURE),
        skip_if(ARCHITECTURE?, 1),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(OFFSET_NUMBER),
    ];

    for &number in groups.iter().flat_map(|group| group.plain) {
        program.push(skip_one_unless(u32::try_from(number).ok()?));
        program.push(give(libc::SECCOMP_RET_ALLOW));
    }

    // These come last, so that calls which another group allows with any arguments are already allowed.
    for checked in groups.iter().flat_map(|group| group.checked) {
        let checks = checks(checked.arguments, otherwise);
        program.push(unless(u32::try_from(checked.number).ok()?, u8::try_from(checks.len()).ok()?));
        program.extend(checks);
    }

    program.push(give(otherwise));
    Some(program)
}

/// Allows the call if every argument matches. Either way the program ends there.
fn checks(arguments: &[(u32, Allowed)], otherwise: u32) -> Vec<libc::sock_filter> {
    let mut checks = Vec::new();

    for (argument, allowed) in arguments {
        checks.push(load(OFFSET_ARGUMENTS + argument * ARGUMENT_BYTES));
        match allowed {
            Allowed::OneOf(values) => {
                for (place, value) in values.iter().enumerate() {
                    // Skips the remaining values and the refusal.
                    checks.push(skip_if(*value, (values.len() - place) as u8));
                }
            }
            Allowed::Without(bits) => {
                checks.push(skip_if_none(*bits));
            }
        }
        checks.push(give(otherwise));
    }

    checks.push(give(libc::SECCOMP_RET_ALLOW));
    checks
}

fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), offset)
}

fn skip_if(value: u32, skipped: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (skipped, 0), value)
}

fn skip_one_unless(value: u32) -> libc::sock_filter {
    unless(value, 1)
}

fn unless(value: u32, skipped: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, skipped), value)
}

/// Skips one instruction if none of the bits is set.
fn skip_if_none(bits: u32) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, (0, 1), bits)
}

fn give(value: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, (0, 0), value)
}

fn instruction(code: u32, (jt, jf): (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{CAP_SYS_ADMIN, effective_capabilities};
    use std::env;
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::fd::AsRawFd;
    use std::process::Command;

    fn errno(rc: libc::c_int) -> Option<i32> {
        (rc == -1).then(|| Errno::last().0)
    }

    /// Enters this process's own namespace of a kind. Returns the error, if any.
    fn enter(kind: &str, flags: libc::c_int) -> Option<i32> {
        let namespace = File::open(format!("/proc/self/ns/{kind}")).unwrap();
        // SAFETY: setns takes integers.
        errno(unsafe { libc::setns(namespace.as_raw_fd(), flags) })
    }

    /// Opens a netlink socket, which stays open. Returns the error, if any.
    fn netlink(protocol: libc::c_int) -> Option<i32> {
        // SAFETY: socket takes integers.
        errno(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol) })
    }

    /// Runs this program again as a separate process with the same capabilities, so that a refusal there comes from the filter.
    #[test]
    fn no_namespace_but_network_ones_is_entered_and_two_kinds_of_netlink_opened() {
        const NAME: &str = "seccomp::tests::no_namespace_but_network_ones_is_entered_and_two_kinds_of_netlink_opened";
        if effective_capabilities().unwrap_or(0) & 1 << CAP_SYS_ADMIN == 0 {
            assert!(env::var_os("REQUIRE_ALL").is_none_or(|value| value != "1"), "needs root");
            writeln!(io::stderr(), "skipped: entering namespaces needs root").unwrap();
            return;
        }
        if env::var_os("WEIR_TEST_CHILD").is_none() {
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["--exact", NAME, "--nocapture", "--test-threads=1"]);
            let status = child.env("WEIR_TEST_CHILD", "1").status().unwrap();
            assert_eq!(status.code(), Some(0));
            return;
        }
        let others = [("uts", libc::CLONE_NEWUTS), ("ipc", libc::CLONE_NEWIPC)];
        for (kind, flags) in others {
            assert_eq!(enter(kind, flags), None, "{kind}");
        }
        // xfrm, audit, netfilter, kobject_uevent: those that this kernel has.
        let kinds: Vec<_> =
            [6, 9, 12, 15].into_iter().filter(|kind| netlink(*kind).is_none()).collect();
        assert!(!kinds.is_empty());
        let list = [
            Calls::RUN,
            Calls::MESSAGES,
            Calls::READ_FILES,
            Calls::OPEN_NETLINK,
            Calls::ENTER_NAMESPACES,
        ];
        allow_only(&list, Otherwise::Refuse).unwrap();
        assert_eq!(enter("net", libc::CLONE_NEWNET), None);
        // 0 means whatever kind the descriptor refers to.
        for (kind, flags) in others.into_iter().chain([("net", 0), ("mnt", libc::CLONE_NEWNS)]) {
            assert_eq!(enter(kind, flags), Some(libc::EPERM), "{kind} {flags:#x}");
        }
        for kind in kinds {
            assert_eq!(netlink(kind), Some(libc::EPERM), "netlink of kind {kind}");
        }
        assert_eq!(NETLINK_PROTOCOLS, [0, 4]);
        assert_eq!((netlink(0), netlink(4)), (None, None));
    }
}
