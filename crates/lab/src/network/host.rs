use super::{Counters, End, Error};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use sys::namespace::OpenNamespace;

/// One host of the network. A copy keeps the host, not the links to it, alive.
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) end: End,
    pub(super) namespace: Arc<OpenNamespace>,
    pub(super) has_ipv6: bool,
}

impl Host {
    /// Its address.
    pub fn ipv4(&self) -> Ipv4Addr {
        self.end.ipv4()
    }

    /// Its other address; `None` where there is no IPv6.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.has_ipv6.then(|| self.end.ipv6())
    }

    /// Runs `f` in the host, on a thread of its own, and waits for it. Sockets that it opens stay in the host; the calling
    /// thread does not move.
    ///
    /// # Errors
    /// When the thread cannot be started or moved.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        self.namespace.run(f).map_err(|source| Error::Namespace { of: self.end.name(), source })
    }

    /// Moves the calling thread into the host permanently. For a thread that was started for that.
    ///
    /// # Errors
    /// When the kernel refuses, which it has granted before.
    pub fn move_this_thread(&self) -> Result<(), Error> {
        let moved = self.namespace.move_this_thread();
        moved.map_err(|source| Error::Namespace { of: self.end.name(), source })
    }

    /// What the kernel counts in this host, TCP's retransmissions among it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.run(Counters::read)?.map_err(|source| self.failed("/proc/net/netstat", source))
    }

    /// Reads a setting of this host's network by its name, such as `net.ipv4.tcp_rto_max_ms`.
    ///
    /// # Errors
    /// When this kernel has no such setting.
    pub fn setting(&self, name: &str) -> Result<String, Error> {
        let value = self.run(|| fs::read_to_string(path(name)))?;
        value.map(|value| value.trim().to_owned()).map_err(|source| self.failed(name, source))
    }

    /// Changes a setting of this host's network. Those that the whole machine shares cannot be written from here
    /// (net/ipv4/sysctl_net_ipv4.c, ipv4_sysctl_init_net).
    ///
    /// # Errors
    /// When there is no such setting, it is shared, the value is not allowed, or `/proc/sys` is mounted read-only.
    pub fn set_setting(&self, name: &str, value: &str) -> Result<(), Error> {
        let written = self.run(|| fs::write(path(name), value))?;
        written.map_err(|source| self.failed(name, source))
    }

    fn failed(&self, name: &str, source: std::io::Error) -> Error {
        Error::Setting { name: name.to_owned(), of: self.end.name(), source }
    }
}

/// The kernel looks below `net` in the namespace of the thread that asks (net/sysctl_net.c, net_ctl_header_lookup).
fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}
