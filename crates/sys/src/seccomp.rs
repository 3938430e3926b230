//! Giving up system calls (seccomp(2)): a process that is taken over can do no more than what is on its list.

use crate::Errno;
use libc::c_long;
use std::ptr;

/// A group of system calls that belong together. A list is made of groups, so that it says what a process does and stays right
/// with either C library.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Allowed whatever their arguments are.
    plain: &'static [c_long],
    /// Allowed with certain arguments.
    checked: &'static [Checked],
}

/// A call that is allowed with certain values of one argument. Only the lower 32 bits are looked at: the kernel takes no more of
/// an `int`.
#[derive(Clone, Copy, Debug)]
struct Checked {
    number: c_long,
    argument: u32,
    allowed: Allowed,
}

#[derive(Clone, Copy, Debug)]
enum Allowed {
    /// This value alone.
    Value(u32),
    /// Values without any of these bits.
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
    /// What every program needs to run on: memory, time, signals, waiting, what is open already, its end.
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

    /// Starting threads. The flags of `clone3(2)` cannot be seen by a filter, so that this allows processes and namespaces too,
    /// as far as capabilities do.
    pub const THREADS: Calls = plain(&[
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_prctl,
        libc::SYS_prlimit64,
        libc::SYS_rseq,
        libc::SYS_set_robust_list,
        libc::SYS_set_tid_address,
    ]);

    /// Sending and receiving with sockets that are open, descriptors included, and asking about them.
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

    /// Opening sockets and giving them addresses.
    pub const OPEN_SOCKETS: Calls = plain(&[
        libc::SYS_bind,
        libc::SYS_connect,
        libc::SYS_listen,
        libc::SYS_socket,
        libc::SYS_socketpair,
    ]);

    /// Opening netlink sockets, and no others.
    pub const OPEN_NETLINK: Calls = Calls {
        plain: &[libc::SYS_bind],
        checked: &[Checked {
            number: libc::SYS_socket,
            argument: 0,
            allowed: Allowed::Value(libc::AF_NETLINK.unsigned_abs()),
        }],
    };

    /// Opening files and folders for reading, and reading what they are. A filter does not see paths; it does see the flags.
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
                argument: 2,
                allowed: Allowed::Without(WRITING_FLAGS),
            },
            #[cfg(target_arch = "x86_64")]
            Checked {
                number: libc::SYS_open,
                argument: 1,
                allowed: Allowed::Without(WRITING_FLAGS),
            },
        ],
    };

    /// Opening files and folders and reading what they are. Whether a file is opened for writing is not looked at;
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

    /// Making, renaming and removing files, and having them on disk. Opening is [`Self::OPEN_FILES`], writing [`Self::RUN`].
    pub const KEEP_FILES: Calls = plain(&[
        libc::SYS_fallocate,
        libc::SYS_fchmod,
        libc::SYS_fdatasync,
        libc::SYS_fsync,
        libc::SYS_ftruncate,
        libc::SYS_linkat,
        libc::SYS_mkdirat,
        libc::SYS_pwrite64,
        RENAMEAT,
        libc::SYS_renameat2,
        libc::SYS_unlinkat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink,
    ]);

    /// Entering namespaces ([`crate::namespace::Home`]).
    pub const ENTER_NAMESPACES: Calls = plain(&[libc::SYS_setns]);

    /// Opening files by handle ([`crate::cgroup::Mount`]).
    pub const OPEN_BY_HANDLE: Calls = plain(&[libc::SYS_open_by_handle_at]);

    /// Giving up more ([`crate::process::keep_capabilities`], [`allow_only`]).
    pub const GIVE_UP: Calls =
        plain(&[libc::SYS_capget, libc::SYS_capset, libc::SYS_prctl, libc::SYS_seccomp]);
}

/// Flags of `open(2)` that write, make or empty a file. `O_TMPFILE` holds `O_DIRECTORY`, which is no harm by itself.
const WRITING_FLAGS: u32 = (libc::O_WRONLY
    | libc::O_RDWR
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | (libc::O_TMPFILE & !libc::O_DIRECTORY))
    .unsigned_abs();

#[cfg(not(target_arch = "aarch64"))]
const RENAMEAT: c_long = libc::SYS_renameat;
/// include/uapi/asm-generic/unistd.h; the binding lacks it for AArch64, where glibc uses it.
#[cfg(target_arch = "aarch64")]
const RENAMEAT: c_long = 38;

/// Allows every thread of this process these calls and no others, for good, and forbids new privileges.
///
/// Calls of another architecture (32-bit programs) kill the process.
///
/// # Errors
/// `ENOSYS` on processors other than x86-64 and AArch64, or when the kernel is built without seccomp; `EBUSY` when a thread
/// has a filter of its own; `E2BIG` above 2,000 calls.
pub fn allow_only(groups: &[Calls], otherwise: Otherwise) -> Result<(), Errno> {
    let mut program = program(groups, otherwise).ok_or(Errno(libc::ENOSYS))?;
    let len = u16::try_from(program.len())
        .ok()
        .filter(|len| *len <= BPF_MAXINSNS)
        .ok_or(Errno(libc::E2BIG))?;
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
        // The number of the thread that could not be brought along.
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
/// Of the first argument's lower half; both architectures above are little-endian.
const OFFSET_ARGUMENTS: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;

/// Compares the number with each of the list. Calls of the x32 variant have bit 30 set in their number, and are on no list.
fn program(groups: &[Calls], otherwise: Otherwise) -> Option<Vec<libc::sock_filter>> {
    let otherwise = match otherwise {
        Otherwise::Refuse => libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(),
        Otherwise::Kill => libc::SECCOMP_RET_KILL_PROCESS,
    };
    let mut program = vec![
        load(OFFSET_ARCHITECTURE),
        skip_one_if(ARCHITECTURE?),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(OFFSET_NUMBER),
    ];
    for &number in groups.iter().flat_map(|group| group.plain) {
        program.push(skip_one_unless(u32::try_from(number).ok()?));
        program.push(give(libc::SECCOMP_RET_ALLOW));
    }
    // Last, so that a call that another group allows without a look at its arguments has been allowed.
    for checked in groups.iter().flat_map(|group| group.checked) {
        program.push(unless(u32::try_from(checked.number).ok()?, 4));
        program.push(load(OFFSET_ARGUMENTS + checked.argument * ARGUMENT_BYTES));
        match checked.allowed {
            Allowed::Value(value) => program.push(skip_one_unless(value)),
            Allowed::Without(bits) => program.push(skip_one_if_any(bits)),
        }
        program.push(give(libc::SECCOMP_RET_ALLOW));
        program.push(give(otherwise));
    }
    program.push(give(otherwise));
    Some(program)
}

fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), offset)
}

fn skip_one_if(value: u32) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (1, 0), value)
}

fn skip_one_unless(value: u32) -> libc::sock_filter {
    unless(value, 1)
}

fn unless(value: u32, skipped: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, skipped), value)
}

fn skip_one_if_any(bits: u32) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, (1, 0), bits)
}

fn give(value: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, (0, 0), value)
}

fn instruction(code: u32, (jt, jf): (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
