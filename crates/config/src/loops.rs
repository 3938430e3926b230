//! Detects targets whose datagrams would come back to us.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The listening address at which datagrams sent to `target` would come back to us, if any.
///
/// `local_addrs` are the addresses of this host other than loopback (and the broadcast addresses of its networks) that the
/// caller knows; they matter for listeners on a wildcard address.
pub fn would_loop(
    listen_addrs: &[SocketAddr],
    target: SocketAddr,
    local_addrs: &[IpAddr],
) -> Option<SocketAddr> {
    let to = target.ip().to_canonical();

    let comes_back = |listen: &&SocketAddr| {
        let on = listen.ip().to_canonical();
        if listen.port() != target.port() || listen.port() == 0 || on.is_ipv4() != to.is_ipv4() {
            return false;
        }

        // Connecting to the wildcard address reaches loopback (net/ipv4/route.c, ip_route_output_key_hash_rcu).
        let reaches_loopback = to.is_unspecified() && on.is_loopback();

        // A wildcard socket inherited from a service manager receives every group that any socket of this host joined (ip(7),
        // IP_MULTICAST_ALL).
        let is_joined = || {
            to.is_multicast() && listen_addrs.iter().any(|other| other.ip().to_canonical() == to)
        };

        let is_here = || {
            to.is_loopback()
                || to.is_unspecified()
                || to == IpAddr::V4(Ipv4Addr::BROADCAST)
                || local_addrs.iter().any(|local| local.to_canonical() == to)
                || is_joined()
        };

        on == to || reaches_loopback || on.is_unspecified() && is_here()
    };

    listen_addrs.iter().find(comes_back).copied()
}
