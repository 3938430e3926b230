//! Connections to the addresses at which this process itself serves. While somebody watches a quiet host, they would be most of
//! its connections.

use crate::engine::Engine;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use wire::inet_diag::{SocketId, SocketMessage, State};

/// The TCP addresses at which this process serves, in its own network namespace. They may change while a collector runs.
#[derive(Clone, Debug, Default)]
pub struct Served(Arc<Mutex<Vec<SocketAddr>>>);

impl Served {
    /// From now on it serves at these, and the collector leaves out their connections.
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        // Nothing panics while it holds the lock.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Engine<'_> {
    /// Looks up at which addresses this process serves now.
    pub(crate) fn refresh_served(&mut self) {
        self.served = self.options.served.addresses();
    }

    /// Whether a socket is an end of a connection to this process's own addresses. A listening socket is none.
    pub(crate) fn is_served(&self, message: &SocketMessage<'_>, place: Option<u32>) -> bool {
        if self.served.is_empty() || message.state == State::Listen {
            return false;
        }
        let known = place.and_then(|place| self.namespaces.get(place));
        known.is_some_and(|known| known.is_own)
            && self.served.iter().any(|address| is_to(&message.id, *address))
    }
}

/// Whether a socket is the server's or the client's end of a connection to an address of this host.
fn is_to(id: &SocketId, address: SocketAddr) -> bool {
    let (src, dst) = (id.src.ip().to_canonical(), id.dst.ip().to_canonical());
    let is_there = |ip: IpAddr| address.ip().is_unspecified() || ip == address.ip();
    // A host reaches its own addresses from the same one, and from loopback ones.
    let is_near = dst.is_loopback() || dst == src;
    (id.src.port() == address.port() && is_there(src))
        || (id.dst.port() == address.port() && is_there(dst) && is_near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_on_this_host_and_no_others() {
        let check = |src: &str, dst: &str, served: &str, expected: bool| {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            let id = SocketId { src, dst, interface_index: 0, cookie: 1 };
            assert_eq!(is_to(&id, served.parse().unwrap()), expected, "{src} {dst} {served}");
        };
        check("127.0.0.1:9464", "127.0.0.1:40000", "127.0.0.1:9464", true);
        check("127.0.0.1:40000", "127.0.0.1:9464", "127.0.0.1:9464", true);
        check("[::ffff:10.0.0.1]:9464", "[::ffff:10.0.0.2]:40000", "[::]:9464", true);
        check("10.0.0.1:9464", "10.0.0.2:40000", "0.0.0.0:9464", true);
        check("10.0.0.1:40000", "10.0.0.1:9464", "0.0.0.0:9464", true);
        // Another host's, and another service at another address of this one.
        check("10.0.0.1:40000", "10.0.0.2:9464", "0.0.0.0:9464", false);
        check("127.0.0.2:9464", "127.0.0.1:40000", "127.0.0.1:9464", false);
        check("127.0.0.1:40000", "127.0.0.1:9465", "127.0.0.1:9464", false);
    }
}
