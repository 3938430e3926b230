use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A destination for datagrams, or an address to receive them at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// UDP over IPv4 or IPv6; a listener joins a multicast group.
    Udp(SocketAddr),
    /// A unix datagram socket's path.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Udp(addr) => write!(f, "udp://{addr}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
