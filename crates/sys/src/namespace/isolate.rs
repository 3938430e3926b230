//! Namespaces for a program that is not root: a user namespace in which it is, and a network namespace that belongs to it.

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
/// From there on the process has every capability over what it makes, and none over what was there before: the host's own
/// network can be neither seen nor changed. Files keep their owners. There is no way back.
///
/// Call it before the first thread is started; for a process that has threads there is [`isolate_child`].
///
/// # Errors
/// [`IsolateError`], which names the obstacle. When the refused call is not the first one, `unshare`, the process has moved
/// already: report and end.
pub fn isolate() -> Result<(), IsolateError> {
    become_root_of_new_namespaces().map_err(|(step, errno)| IsolateError::find(step, errno))
}

/// Has a child process start in new namespaces of its own, as [`isolate`] does it for this one. Works with threads too.
///
/// Root inside stands for the user that the child is when it starts, which [`CommandExt::uid`] may have chosen. When the kernel
/// refuses, `spawn` fails with the error number alone; [`IsolateError::of_spawn`] finds the obstacle.
pub fn isolate_child(command: &mut Command) -> &mut Command {
    let start = || become_root_of_new_namespaces().map_err(|(_, errno)| io::Error::from(errno));
    // SAFETY: between fork and exec only calls are allowed that take no lock another thread may have held: `start` makes
    // system calls and formats numbers into memory of its own, and allocates nothing.
    unsafe { command.pre_exec(start) }
}

/// Why a process cannot have namespaces of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IsolateError {
    /// The step that was refused.
    pub step: &'static str,
    /// What the kernel said.
    pub errno: Errno,
    /// What stands in the way, as far as it can be found out.
    pub obstacle: Obstacle,
}

/// What keeps a process from having namespaces of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// A setting of the kernel's.
    Setting {
        /// Its name as `sysctl` knows it.
        name: &'static str,
        /// What it is set to.
        value: String,
        /// What it would have to be set to.
        needed: &'static str,
    },
    /// The kernel was built without user namespaces.
    NotBuilt,
    /// The process has more than one thread.
    HasThreads,
    /// No setting forbids it. What remains is a filter of system calls, as container engines set one, or a security module.
    Unknown,
}

impl IsolateError {
    /// Reads the error of `spawn` after [`isolate_child`].
    pub fn of_spawn(error: &io::Error) -> IsolateError {
        IsolateError::find("unshare of a user namespace", Errno::from(error))
    }

    /// Whether privilege or a setting would fix it; otherwise the kernel cannot do it.
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

/// A setting that forbids user namespaces to those who are not root.
struct Setting {
    name: &'static str,
    path: &'static str,
    forbids: &'static str,
    needed: &'static str,
}

const SETTINGS: [Setting; 4] = [
    // Debian's and Arch's.
    Setting {
        name: "kernel.unprivileged_userns_clone",
        path: "/proc/sys/kernel/unprivileged_userns_clone",
        forbids: "0",
        needed: "1",
    },
    // Ubuntu's since 23.10: the namespace is made, and everything in it refused.
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

/// Only system calls and no allocation: it runs between fork and exec too.
fn become_root_of_new_namespaces() -> Result<(), (&'static str, Errno)> {
    // The user that root inside stands for. Asked afterwards, the kernel would answer "nobody".
    // SAFETY: neither call takes an argument, and neither fails.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };

    // SAFETY: unshare takes no pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })
        .map_err(|errno| ("unshare of a user namespace", errno))?;

    // The files below are the process's own only while it may be dumped (fs/proc/base.c, task_dump_owner), which it may not
    // when its program file has capabilities or when it has just given up root. Those are gone now.
    // SAFETY: with these arguments prctl takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1_u64, 0_u64, 0_u64, 0_u64) })
        .map_err(|errno| ("prctl(PR_SET_DUMPABLE)", errno))?;

    // Without it nobody but root may map groups (user_namespaces(7)). Kernels before 3.19 have no such file.
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

/// In one call, as the kernel asks for it (user_namespaces(7)).
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
