//! Namespaces for a program that is not root: a user namespace to be root in, and a network namespace that belongs to it.

use crate::Errno;
use crate::errno::check;
use std::error;
use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Moves this process into a new user namespace, in which it is root, and a new network namespace that belongs to it.
///
/// The process then has every capability over what it creates and none over what existed before: it can neither see nor change
/// the host's network. Files keep their owners. There is no way back.
///
/// Call it before the first thread is started; for a process with threads there is [`isolate_child`].
///
/// # Errors
/// [`IsolateError`], which names the obstacle. If the refused call is not the first one, `unshare`, the process has already
/// moved: report and exit.
pub fn isolate() -> Result<(), IsolateError> {
    become_root_of_new_namespaces().map_err(|(step, errno)| IsolateError::find(step, errno))
}

/// Starts a child process in new namespaces of its own, as [`isolate`] does for this process. Works with threads too.
///
/// Root inside maps to the user that the child runs as when it starts, which [`CommandExt::uid`] may have chosen. When the
/// kernel refuses, `spawn` fails with only the error number; [`IsolateError::of_spawn`] finds the obstacle.
pub fn isolate_child(command: &mut Command) -> &mut Command {
    let start = || become_root_of_new_namespaces().map_err(|(_, errno)| io::Error::from(errno));
    // SAFETY: between fork and exec, only calls that take no lock another thread may have held are allowed: `start` makes
    // system calls and formats numbers into its own memory, and allocates nothing.
    unsafe { command.pre_exec(start) }
}

/// Why a process cannot have namespaces of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IsolateError {
    /// The step that was refused.
    pub step: &'static str,
    /// The error number.
    pub errno: Errno,
    /// What prevents it, as far as can be determined.
    pub obstacle: Obstacle,
}

/// What prevents a process from having namespaces of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// A kernel setting.
    Setting {
        /// Its `sysctl` name.
        name: &'static str,
        /// Its current value.
        value: String,
        /// The value it would need.
        needed: &'static str,
    },
    /// The kernel was built without user namespaces.
    NotBuilt,
    /// The process has more than one thread.
    HasThreads,
    /// No setting forbids it. What remains is a system call filter, such as container engines install, or a security module.
    Unknown,
}

impl IsolateError {
    /// Interprets the error of `spawn` after [`isolate_child`].
    pub fn of_spawn(error: &io::Error) -> IsolateError {
        IsolateError::find("unshare of a user namespace", Errno::from(error))
    }

    /// Whether a privilege or a setting would fix it; otherwise the kernel cannot do it.
    pub fn is_permission(&self) -> bool {
        self.obstacle != Obstacle::NotBuilt
    }

    /// A command that fixes it, to be run as root.
    pub fn remedy(&self) -> Option<String> {
        match &self.obstacle {
            Obstacle::Setting { name, needed, .. } => Some(format!("sysctl -w {name}={needed}")),
            _ => None,
        }
    }

    fn find(step: &'static str, errno: Errno) -> IsolateError {
        let obstacle = SETTINGS
            .iter()
            .find_map(Setting::obstacle)
            .or_else(|| is_missing("/proc/self/ns/user").then_some(Obstacle::NotBuilt))
            // kernel/fork.c, check_unshare_flags.
            .or_else(|| (errno == Errno::INVAL).then_some(Obstacle::HasThreads))
            .unwrap_or(Obstacle::Unknown);
        IsolateError { step, errno, obstacle }
    }
}

impl fmt::Display for IsolateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.step, self.errno)?;
        match &self.obstacle {
            Obstacle::Setting { name, value, .. } => write!(f, "the setting {name} is {value}"),
            Obstacle::NotBuilt => write!(f, "this kernel is built without user namespaces"),
            Obstacle::HasThreads => write!(f, "the process has more than one thread"),
            Obstacle::Unknown => {
                write!(
                    f,
                    "no setting forbids it, but a system call filter or a security module may"
                )
            }
        }
    }
}

impl error::Error for IsolateError {}

/// A setting that forbids user namespaces to unprivileged users.
struct Setting {
    name: &'static str,
    path: &'static str,
    forbids: &'static str,
    needed: &'static str,
}

const SETTINGS: [Setting; 4] = [
    // On Debian and Arch.
    Setting {
        name: "kernel.unprivileged_userns_clone",
        path: "/proc/sys/kernel/unprivileged_userns_clone",
        forbids: "0",
        needed: "1",
    },
    // On Ubuntu since 23.10: the namespace is created, and everything in it refused.
    Setting {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        path: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        forbids: "1",
        needed: "0",
    },
    Setting {
        name: "user.max_user_namespaces",
        path: "/proc/sys/user/max_user_namespaces",
        forbids: "0",
        needed: "10000",
    },
    Setting {
        name: "user.max_net_namespaces",
        path: "/proc/sys/user/max_net_namespaces",
        forbids: "0",
        needed: "10000",
    },
];

impl Setting {
    fn obstacle(&self) -> Option<Obstacle> {
        let value = fs::read_to_string(self.path).ok()?;
        (value.trim() == self.forbids).then(|| Obstacle::Setting {
            name: self.name,
            value: value.trim().to_owned(),
            needed: self.needed,
        })
    }
}

fn is_missing(path: &str) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Makes only system calls and does not allocate: it also runs between fork and exec.
fn become_root_of_new_namespaces() -> Result<(), (&'static str, Errno)> {
    // The user that root inside maps to. After `unshare`, the kernel would answer "nobody".
    // SAFETY: neither call takes an argument, and neither fails.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };

    // SAFETY: unshare takes no pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })
        .map_err(|errno| ("unshare of a user namespace", errno))?;

    // The files below belong to the process only while it is dumpable (fs/proc/base.c, task_dump_owner). It is not when its
    // executable has file capabilities or when it has just dropped root. Both are gone now.
    // SAFETY: with these arguments prctl takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1_u64, 0_u64, 0_u64, 0_u64) })
        .map_err(|errno| ("prctl(PR_SET_DUMPABLE)", errno))?;

    // Without it, only root may map groups (user_namespaces(7)). Kernels before 3.19 have no such file.
    match write_file(c"/proc/self/setgroups", b"deny") {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(("writing /proc/self/setgroups", errno)),
    }

    write_map(c"/proc/self/uid_map", uid).map_err(|errno| ("writing /proc/self/uid_map", errno))?;
    write_map(c"/proc/self/gid_map", gid).map_err(|errno| ("writing /proc/self/gid_map", errno))
}

/// Maps root inside to `outside`.
fn write_map(path: &CStr, outside: u32) -> Result<(), Errno> {
    let mut line = [0; 32];
    let room = line.len();
    let mut rest = &mut line[..];
    write!(rest, "0 {outside} 1").expect("a u32 has at most ten digits");
    let len = room - rest.len();
    write_file(path, &line[..len])
}

/// Writes in one call, as the kernel requires (user_namespaces(7)).
fn write_file(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the path ends with a zero byte and outlives the call.
    let fd = check(unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
    // SAFETY: the pointer and the length describe `bytes`, which outlives the call.
    let rc = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    let result = if rc == -1 { Err(Errno::last()) } else { Ok(()) };
    // SAFETY: the descriptor is open, was made here, and is not used again.
    unsafe { libc::close(fd) };
    result
}
