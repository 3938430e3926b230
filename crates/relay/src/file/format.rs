//! How a datagram is written to a file.

use crate::FileFormat;
use std::net::{Ipv6Addr, SocketAddr};
use sys::Source;
use sys::socket::LocalAddress;

/// Header of a capture file: nanosecond magic, version 2.4, snap length 262,144, link type 101 (raw IP)
/// (draft-ietf-opsawg-pcap, section 4).
pub(super) const PCAP_HEADER: [u8; 24] = [
    0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, // magic 0xa1b23c4d, little-endian; major; minor
    0, 0, 0, 0, 0, 0, 0, 0, // reserved
    0, 0, 4, 0, 101, 0, 0, 0, // snap length, link type
];

const UDP_HEADER_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;

pub(super) struct Datagram<'a> {
    /// When the first Weir received it, in nanoseconds since 1970.
    pub(super) received_unix_ns: u64,
    pub(super) source: &'a Source,
    pub(super) bytes: &'a [u8],
    /// The address of the listener.
    pub(super) local: Option<&'a LocalAddress>,
}

pub(super) fn append(buffer: &mut Vec<u8>, format: FileFormat, datagram: &Datagram<'_>) {
    match format {
        FileFormat::Lines => {
            buffer.extend_from_slice(datagram.bytes);
            if datagram.bytes.last() != Some(&b'\n') {
                buffer.push(b'\n');
            }
        }
        FileFormat::LengthPrefixed => {
            buffer.extend_from_slice(&(datagram.bytes.len() as u32).to_be_bytes());
            buffer.extend_from_slice(datagram.bytes);
        }
        FileFormat::Pcap => append_pcap(buffer, datagram),
    }
}

/// Appends a packet record: time, lengths, then an IP packet with UDP, as it might have been captured.
///
/// Datagrams of unix sockets have no addresses and appear as from and to `::`.
fn append_pcap(buffer: &mut Vec<u8>, datagram: &Datagram<'_>) {
    let time_ns = datagram.received_unix_ns;
    let record_at = buffer.len();
    buffer.extend_from_slice(&((time_ns / 1_000_000_000) as u32).to_le_bytes());
    buffer.extend_from_slice(&((time_ns % 1_000_000_000) as u32).to_le_bytes());
    // The two lengths, filled in at the end.
    buffer.extend_from_slice(&[0; 8]);

    let packet_at = buffer.len();
    let unspecified = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let src = datagram.source.address().unwrap_or(unspecified);
    let dst = match datagram.local {
        Some(LocalAddress::Inet(addr)) => *addr,
        _ => unspecified,
    };

    // A datagram of a unix socket may be longer than UDP allows. Its end is then cut off, and the record says so.
    let bytes = &datagram.bytes[..datagram.bytes.len().min(0xffff - UDP_HEADER_BYTES)];
    let udp_len = UDP_HEADER_BYTES + bytes.len();

    // The total length of an IPv4 packet has 16 bits. IPv6 counts only its payload, so the longest datagrams are written as IPv6.
    let addresses = match (src, dst) {
        (SocketAddr::V4(src), SocketAddr::V4(dst)) if udp_len + 20 <= 0xffff => {
            let begin = buffer.len();
            buffer.extend_from_slice(&[0x45, 0]);
            buffer.extend_from_slice(&((20 + udp_len) as u16).to_be_bytes());
            // No identification, don't fragment, a TTL of 64; the checksum is filled in below.
            buffer.extend_from_slice(&[0, 0, 0x40, 0, 64, PROTOCOL_UDP, 0, 0]);
            buffer.extend_from_slice(&src.ip().octets());
            buffer.extend_from_slice(&dst.ip().octets());
            let checksum = !fold(sum(&buffer[begin..]));
            buffer[begin + 10..begin + 12].copy_from_slice(&checksum.to_be_bytes());
            sum(&src.ip().octets()) + sum(&dst.ip().octets())
        }
        (src, dst) => {
            let octets = |addr: SocketAddr| match addr {
                SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped().octets(),
                SocketAddr::V6(v6) => v6.ip().octets(),
            };
            buffer.extend_from_slice(&[0x60, 0, 0, 0]);
            buffer.extend_from_slice(&(udp_len as u16).to_be_bytes());
            buffer.extend_from_slice(&[PROTOCOL_UDP, 64]);
            buffer.extend_from_slice(&octets(src));
            buffer.extend_from_slice(&octets(dst));
            sum(&octets(src)) + sum(&octets(dst))
        }
    };

    let udp_at = buffer.len();
    buffer.extend_from_slice(&src.port().to_be_bytes());
    buffer.extend_from_slice(&dst.port().to_be_bytes());
    buffer.extend_from_slice(&(udp_len as u16).to_be_bytes());
    buffer.extend_from_slice(&[0, 0]);
    buffer.extend_from_slice(bytes);

    // RFC 768 and RFC 8200 section 8.1: over addresses, protocol, length and the datagram; 0 is sent as all ones.
    let total = addresses + u32::from(PROTOCOL_UDP) + udp_len as u32 + sum(&buffer[udp_at..]);
    let checksum = match !fold(total) {
        0 => 0xffff,
        checksum => checksum,
    };
    buffer[udp_at + 6..udp_at + 8].copy_from_slice(&checksum.to_be_bytes());

    let captured_len = (buffer.len() - packet_at) as u32;
    let packet_len = captured_len + (datagram.bytes.len() - bytes.len()) as u32;
    buffer[record_at + 8..record_at + 12].copy_from_slice(&captured_len.to_le_bytes());
    buffer[record_at + 12..record_at + 16].copy_from_slice(&packet_len.to_le_bytes());
}

/// Sum of big-endian 16-bit words, an odd last byte padded with zero (RFC 1071). At most 33,000 words: no overflow.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
