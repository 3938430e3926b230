use crate::Errno;
use crate::process::{CAP_SYS_ADMIN, CAP_SYS_PTRACE, capability_name};
use std::error;
use std::fmt;

/// Why a namespace cannot be opened or entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// It is no longer where it was found: its process has ended or its file was unmounted. Harmless.
    Gone,
    /// The kernel refused.
    NotPermitted {
        /// The system call.
        call: &'static str,
        /// The missing capability (linux/capability.h). `setns` needs it twice: in the caller's user namespace and in the
        /// one that owns the network namespace (net/core/net_namespace.c, netns_install).
        capability: u32,
    },
    /// Another error.
    Syscall {
        /// The system call.
        call: &'static str,
        /// The error number.
        errno: Errno,
    },
}

impl Error {
    /// Interprets an error from opening `/proc/PID/ns/net` or a mounted namespace.
    pub(super) fn from_open(errno: Errno) -> Error {
        match errno.0 {
            // A process that is ending has no namespace (ENOENT); one that has ended has no directory (ESRCH, ENOENT). A
            // FIFO or a device in its place is not a namespace either.
            libc::ENOENT | libc::ESRCH | libc::ENOTDIR | libc::ELOOP | libc::ENXIO => Error::Gone,
            // fs/proc/namespaces.c, proc_ns_get_link: ptrace_may_access.
            libc::EACCES | libc::EPERM => {
                Error::NotPermitted { call: "open", capability: CAP_SYS_PTRACE }
            }
            _ => Error::Syscall { call: "open", errno },
        }
    }

    /// Interprets an error from `unshare(2)`.
    pub(super) fn from_unshare(errno: Errno) -> Error {
        match errno.0 {
            libc::EPERM => Error::NotPermitted { call: "unshare", capability: CAP_SYS_ADMIN },
            _ => Error::Syscall { call: "unshare", errno },
        }
    }

    /// Interprets an error from `setns(2)`.
    pub(super) fn from_setns(errno: Errno) -> Error {
        match errno.0 {
            libc::EPERM => Error::NotPermitted { call: "setns", capability: CAP_SYS_ADMIN },
            // Not a file of nsfs, or a namespace of another kind.
            libc::EINVAL => Error::Gone,
            _ => Error::Syscall { call: "setns", errno },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Gone => write!(f, "the network namespace is gone"),
            Error::NotPermitted { call, capability } => {
                let name = capability_name(*capability).unwrap_or("a capability");
                write!(f, "{call} of a network namespace needs {name}")
            }
            // kernel/ucount.c, inc_ucount.
            Error::Syscall { call: "unshare", errno: Errno::NOSPC } => {
                write!(
                    f,
                    "no more network namespaces: the setting user.max_net_namespaces is reached"
                )
            }
            Error::Syscall { call, errno } => write!(f, "{call} of a network namespace: {errno}"),
        }
    }
}

impl error::Error for Error {}
