use super::{Counters, End, Error};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use sys::namespace::OpenNamespace;

/// One host of the network. A copy keeps the host alive, but not the links to it.
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) end: End,
    pub(super) namespace: Arc<OpenNamespace>,
    pub(super) has_ipv6: bool,
}

impl Host {
    /// The host's IPv4 address.
    pub fn ipv4(&self) -> Ipv4Addr {
        self.end.ipv4()
    }

    /// The host's IPv6 address; `None` without IPv6.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.has_ipv6.then(|| self.end.ipv6())
    }

    /// Runs `f` in the host, on a separate thread, and waits for it. Sockets that it opens stay in the host; the calling
    /// thread does not move.
    ///
    /// # Errors
    /// The thread cannot be started or moved.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        self.namespace.run(f).map_err(|source| Error::Namespace { of: self.end.name(), source })
    }

    /// Moves the calling thread into the host permanently. Only for a thread that was started for this purpose.
    ///
    /// # Errors
    /// The kernel refuses, although it allowed the same before.
    pub fn move_this_thread(&self) -> Result<(), Error> {
        let moved = self.namespace.move_this_thread();
        moved.map_err(|source| Error::Namespace { of: self.end.name(), source })
    }

    /// The kernel's counters in this host, such as TCP's retransmissions.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.run(Counters::read)?.map_err(|source| Error::Counters { of: self.end.name(), source })
    }
}
