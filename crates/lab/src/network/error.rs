use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use sys::{link, namespace};

/// Why the network could not be built, or what failed in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the namespace of {of}")]
    Namespace {
        of: &'static str,
        #[source]
        source: namespace::Error,
    },
    #[error(transparent)]
    Link(#[from] link::Error),
    #[error("no datagram came to {dst} within {} s", waited.as_secs())]
    NotReady { dst: SocketAddr, waited: Duration },
    #[error("a socket to try the network with")]
    Probe(#[source] io::Error),
    #[error("the line that delays what the hosts send each other (/dev/net/tun)")]
    Tap(#[source] io::Error),
    #[error("the counters of {of}")]
    Counters {
        of: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("neither root nor allowed to be it in a user namespace")]
    Privilege(#[from] namespace::IsolateError),
}

impl Error {
    /// Whether more privileges or a different setting would fix it.
    pub fn is_permission(&self) -> bool {
        let is_refused = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
        match self {
            Error::Namespace { source, .. } => {
                matches!(source, namespace::Error::NotPermitted { .. })
            }
            Error::Link(error) => error.errno() == Some(sys::Errno::PERM),
            Error::Probe(source) | Error::Tap(source) | Error::Counters { source, .. } => {
                is_refused(source)
            }
            Error::Privilege(error) => error.is_permission(),
            Error::NotReady { .. } => false,
        }
    }

    /// Whether this kernel lacks a feature that the network needs; the error names it.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Error::Namespace { source, .. } => {
                *source == namespace::Error::Syscall { call: "unshare", errno: sys::Errno::INVAL }
            }
            Error::Link(error) => error.is_unsupported(),
            Error::Privilege(error) => !error.is_permission(),
            Error::Tap(source) => source.kind() == io::ErrorKind::NotFound,
            Error::Probe(_) | Error::Counters { .. } | Error::NotReady { .. } => false,
        }
    }

    /// A command that fixes it; it must run as root.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Error::Privilege(error) => error.remedy(),
            _ => None,
        }
    }
}
