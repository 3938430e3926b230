//! PROXY protocol version 2: a header in front of a datagram that names its sender (HAProxy, doc/proxy-protocol.txt, section
//! 2.2).
//!
//! Version 1 is text for streams and not supported.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header that [`write()`] makes: the fixed part, and two IPv6 addresses with their ports.
pub const HEADER_BYTES_MAX: usize = FIXED_BYTES + V6_BYTES;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and transport, length of the rest.
const FIXED_BYTES: usize = 16;

/// Two addresses and two ports.
const V4_BYTES: usize = 12;
const V6_BYTES: usize = 36;
/// Two paths of unix sockets.
const UNIX_BYTES: usize = 216;

/// Version 2 in the upper half, the command in the lower half.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// The family in the upper half, datagrams in the lower half.
const V4_DATAGRAM: u8 = 0x12;
const V6_DATAGRAM: u8 = 0x22;

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The original sender of the datagram. `None` if the header does not name one: either whoever added the header is the sender
    /// itself (`LOCAL`), or the sender has no internet address.
    pub sender: Option<SocketAddr>,
    /// Length of the header in the datagram, including its extensions (TLVs), which are ignored.
    pub header_bytes: usize,
}

/// Parses the header at the beginning of a datagram. `None` if there is none, it is incomplete, or its version, command, family
/// or transport is unknown, which a receiver must not guess at (section 2.2).
pub fn read(datagram: &[u8]) -> Option<Header> {
    let (fixed, rest) = datagram.split_first_chunk::<FIXED_BYTES>()?;
    let [.., version_command, family_transport, len_high, len_low] = *fixed;
    if !fixed.starts_with(SIGNATURE) || !matches!(version_command, LOCAL | PROXY) {
        return None;
    }

    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let addresses = rest.get(..len)?;
    let header_bytes = FIXED_BYTES + len;
    if version_command == LOCAL {
        // The family must be ignored, but not the length.
        return Some(Header { sender: None, header_bytes });
    }

    let (family, transport) = (family_transport >> 4, family_transport & 15);
    if transport > 2 {
        return None;
    }
    let sender = match family {
        0 => None,
        1 => Some(v4_sender(addresses)?),
        2 => Some(v6_sender(addresses)?),
        3 => addresses.get(..UNIX_BYTES).map(|_| None)?,
        _ => return None,
    };
    Some(Header { sender, header_bytes })
}

/// Source address, destination address, source port, destination port.
fn v4_sender(addresses: &[u8]) -> Option<SocketAddr> {
    let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses.first_chunk::<V4_BYTES>()?;
    Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
}

fn v6_sender(addresses: &[u8]) -> Option<SocketAddr> {
    let addresses = addresses.first_chunk::<V6_BYTES>()?;
    let ip = Ipv6Addr::from(*addresses.first_chunk::<16>()?);
    let port = u16::from_be_bytes([addresses[32], addresses[33]]);
    // An IPv4-mapped address is the same host as the IPv4 address.
    Some((ip.to_canonical(), port).into())
}

/// Writes the header for a datagram that `sender` sent to `destination`, and returns its length in bytes. If the destination has
/// another family, only its port is included. Without a sender, writes a `LOCAL` header.
pub fn write(
    sender: Option<SocketAddr>,
    destination: SocketAddr,
    room: &mut [u8; HEADER_BYTES_MAX],
) -> usize {
    let (fixed, addresses) = room.split_at_mut(FIXED_BYTES);
    let (version_command, family, len) = match sender.map(|sender| sender.ip()) {
        None => (LOCAL, 0, 0),
        Some(IpAddr::V4(_)) => (PROXY, V4_DATAGRAM, V4_BYTES),
        Some(IpAddr::V6(_)) => (PROXY, V6_DATAGRAM, V6_BYTES),
    };
    fixed[..12].copy_from_slice(SIGNATURE);
    fixed[12..].copy_from_slice(&[version_command, family, 0, len as u8]);

    let ports =
        |sender: SocketAddr| [sender.port().to_be_bytes(), destination.port().to_be_bytes()];
    match sender.map(|sender| (sender.ip(), ports(sender))) {
        None => {}
        Some((IpAddr::V4(ip), ports)) => {
            let to = match destination.ip() {
                IpAddr::V4(to) => to,
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            addresses[..4].copy_from_slice(&ip.octets());
            addresses[4..8].copy_from_slice(&to.octets());
            addresses[8..12].copy_from_slice(ports.as_flattened());
        }
        Some((IpAddr::V6(ip), ports)) => {
            let to = match destination.ip() {
                IpAddr::V6(to) => to,
                IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
            };
            addresses[..16].copy_from_slice(&ip.octets());
            addresses[16..32].copy_from_slice(&to.octets());
            addresses[32..36].copy_from_slice(ports.as_flattened());
        }
    }
    FIXED_BYTES + len
}
