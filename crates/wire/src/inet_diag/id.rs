use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::DecodeError;
use crate::bytes::{at, u32_at};

/// Bytes of `struct inet_diag_sockid`.
pub(super) const SOCKET_ID_BYTES: usize = 48;

/// Address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// `AF_INET`.
    Inet,
    /// `AF_INET6`; IPv4 connections of a dual-stack listener are of this family, with v4-mapped addresses.
    Inet6,
}

impl Family {
    /// Linux's number: `AF_INET` 2, `AF_INET6` 10.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Inet => 2,
            Self::Inet6 => 10,
        }
    }

    /// The family with this Linux number.
    ///
    /// # Errors
    /// [`DecodeError::UnknownFamily`] for any other.
    pub const fn from_number(number: u8) -> Result<Self, DecodeError> {
        match number {
            2 => Ok(Self::Inet),
            10 => Ok(Self::Inet6),
            other => Err(DecodeError::UnknownFamily(other)),
        }
    }

    /// `inet` or `inet6`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Inet6 => "inet6",
        }
    }
}

/// Identifies a socket (`struct inet_diag_sockid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    /// Local address and port. A v4-mapped address stays IPv6; flow and scope are 0.
    pub src: SocketAddr,
    /// The peer's address and port; unspecified and port 0 for a listener.
    pub dst: SocketAddr,
    /// Index of the interface that the socket is bound to, 0 for none.
    pub interface_index: u32,
    /// The kernel's number of this socket, unique over all namespaces until the host reboots.
    pub cookie: u64,
}

impl SocketId {
    /// `INET_DIAG_NOCOOKIE` twice: matches any socket in a request.
    pub const NO_COOKIE: u64 = u64::MAX;

    /// The same socket, with any cookie.
    #[must_use]
    pub const fn without_cookie(self) -> Self {
        Self { cookie: Self::NO_COOKIE, ..self }
    }

    /// The socket between two addresses, on any interface and with any cookie.
    #[must_use]
    pub const fn between(src: SocketAddr, dst: SocketAddr) -> Self {
        Self { src, dst, interface_index: 0, cookie: Self::NO_COOKIE }
    }

    /// The family of the local address.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self.src {
            SocketAddr::V4(_) => Family::Inet,
            SocketAddr::V6(_) => Family::Inet6,
        }
    }

    #[inline]
    pub(super) fn decode(family: Family, bytes: &[u8; SOCKET_ID_BYTES]) -> Self {
        const SIZE: usize = SOCKET_ID_BYTES;
        let address = |bytes: [u8; 16]| match family {
            Family::Inet => IpAddr::V4(Ipv4Addr::from(at::<0, 4, 16>(&bytes))),
            Family::Inet6 => IpAddr::V6(Ipv6Addr::from(bytes)),
        };
        let port = u16::from_be_bytes;
        Self {
            src: SocketAddr::new(address(at::<4, 16, SIZE>(bytes)), port(at::<0, 2, SIZE>(bytes))),
            dst: SocketAddr::new(address(at::<20, 16, SIZE>(bytes)), port(at::<2, 2, SIZE>(bytes))),
            interface_index: u32_at::<36, SIZE>(bytes),
            // Two words, the low one first whatever the byte order (`sock_diag_save_cookie`, net/core/sock_diag.c).
            cookie: u64::from(u32_at::<40, SIZE>(bytes))
                | u64::from(u32_at::<44, SIZE>(bytes)) << 32,
        }
    }

    pub(super) fn encode(&self) -> [u8; SOCKET_ID_BYTES] {
        let mut bytes = [0; SOCKET_ID_BYTES];
        bytes[0..2].copy_from_slice(&self.src.port().to_be_bytes());
        bytes[2..4].copy_from_slice(&self.dst.port().to_be_bytes());
        bytes[4..20].copy_from_slice(&words(self.src.ip()));
        bytes[20..36].copy_from_slice(&words(self.dst.ip()));
        bytes[36..40].copy_from_slice(&self.interface_index.to_ne_bytes());
        // The low word first, as in decoding.
        bytes[40..44].copy_from_slice(&(self.cookie as u32).to_ne_bytes());
        bytes[44..48].copy_from_slice(&((self.cookie >> 32) as u32).to_ne_bytes());
        bytes
    }
}

/// An address as the kernel's four words: IPv4 in the first, the others zero.
fn words(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}
