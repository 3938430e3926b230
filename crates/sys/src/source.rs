use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Where a datagram came from, in 24 bytes so that it fits a ring descriptor.
///
/// IPv4 addresses are held as IPv4-mapped IPv6, so that one prefix test serves both families.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Source {
    ip: [u8; 16],
    scope_id: u32,
    port: u16,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u16)]
enum Kind {
    /// The peer of a unix datagram socket.
    #[default]
    None,
    Address,
    /// The sender was not requested.
    Unknown,
}

impl Source {
    /// A sender without an internet address: the peer of a unix datagram socket.
    pub const NONE: Source = Source { ip: [0; 16], scope_id: 0, port: 0, kind: Kind::None };

    /// A sender that was not requested (see [`Sources`](crate::recv::Sources)).
    pub const UNKNOWN: Source = Source { ip: [0; 16], scope_id: 0, port: 0, kind: Kind::Unknown };

    /// Whether the sender was not requested.
    pub fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }

    /// The sixteen bytes of the address, IPv4 as IPv4-mapped IPv6 (RFC 4291 section 2.5.5.2); `None` without one.
    pub fn ip_bytes(&self) -> Option<&[u8; 16]> {
        (self.kind == Kind::Address).then_some(&self.ip)
    }

    /// The source's UDP port in host order; 0 for unix datagrams.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address as the standard library's type, with IPv4-mapped addresses as IPv4.
    pub fn address(&self) -> Option<SocketAddr> {
        let v6 = Ipv6Addr::from(*self.ip_bytes()?);
        Some(match v6.to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, self.port)),
            None => SocketAddrV6::new(v6, self.port, 0, self.scope_id).into(),
        })
    }

    pub(crate) fn v4(addr: Ipv4Addr, port: u16) -> Source {
        Source { ip: addr.to_ipv6_mapped().octets(), scope_id: 0, port, kind: Kind::Address }
    }

    pub(crate) fn v6(ip: [u8; 16], port: u16, scope_id: u32) -> Source {
        Source { ip, scope_id, port, kind: Kind::Address }
    }
}

impl From<SocketAddr> for Source {
    fn from(addr: SocketAddr) -> Source {
        match (addr.ip(), addr) {
            (IpAddr::V4(v4), _) => Source::v4(v4, addr.port()),
            (IpAddr::V6(v6), SocketAddr::V6(full)) => {
                Source::v6(v6.octets(), addr.port(), full.scope_id())
            }
            (IpAddr::V6(v6), SocketAddr::V4(_)) => Source::v6(v6.octets(), addr.port(), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let addr: SocketAddr = text.parse().unwrap();
        assert_eq!(Source::from(addr).address(), Some(addr), "{text}");
    }

    #[test]
    fn addresses_survive_the_compact_form() {
        check("192.0.2.1:514");
        check("[2001:db8::1]:514");
        check("[fe80::1%3]:9");
        assert_eq!((Source::NONE.address(), Source::UNKNOWN.address()), (None, None));
    }
}
