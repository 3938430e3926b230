//! What stands where nothing says what it is: behind MPLS labels, and in GTP.
//!
//! The first four bits are no proof: an Ethernet address may begin with any. So a header is believed only if its own fields agree.

use super::link::{self, IPV4, IPV6};
use super::{Network, Packet};

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;
/// Bytes of the control word of a pseudowire (RFC 4385).
const CONTROL_WORD_BYTES: usize = 4;

/// What follows the last label: IP, or the frame of a pseudowire, with or without its control word.
pub(super) fn behind_labels(bytes: &[u8]) -> Network<'_> {
    let first = bytes.first().map_or(0, |first| first >> 4);
    // A checksum that is right is chance in one of 65,535 frames; a frame whose packet is right is none.
    if has_checksum(bytes) && is_v4(bytes) {
        return Network::Ip(4, bytes);
    }
    if first == 0
        && let Some(frame) = bytes.get(CONTROL_WORD_BYTES..)
        && is_frame(frame)
    {
        return Network::Frame(frame);
    }
    if is_frame(bytes) {
        return Network::Frame(bytes);
    }
    packet(bytes)
}

/// An IP packet of either version.
pub(super) fn packet(bytes: &[u8]) -> Network<'_> {
    if is_v4(bytes) {
        Network::Ip(4, bytes)
    } else if is_v6(bytes) {
        Network::Ip(6, bytes)
    } else {
        Network::Other(bytes)
    }
}

/// Whether it is an IP packet, beyond doubt.
#[cold]
pub(super) fn is_packet(bytes: &[u8]) -> bool {
    (has_checksum(bytes) && is_v4(bytes)) || is_v6(bytes)
}

/// Whether it is an Ethernet frame whose type is right about what it carries: IP that agrees with itself, or ARP.
fn is_frame(bytes: &[u8]) -> bool {
    const ARP: u16 = 0x0806;
    const ARP_OF_ETHERNET: [u8; 6] = [0, 1, 8, 0, 6, 4];
    // A group address is no source.
    if bytes.len() < ETHERNET_BYTES || bytes.get(6).is_none_or(|source| source & 1 != 0) {
        return false;
    }
    // No labels within: each would be a guess about another frame.
    match link::ethernet(bytes, &mut Packet::default()) {
        Some((IPV4, packet)) => is_v4(packet),
        Some((IPV6, packet)) => is_v6(packet),
        Some((ARP, rest)) => rest.starts_with(&ARP_OF_ETHERNET),
        _ => false,
    }
}

/// Whether the header has a checksum. Some hosts leave it to their network card, and it is 0 when the frame is sampled.
fn has_checksum(bytes: &[u8]) -> bool {
    bytes.get(10..12).is_some_and(|sum| sum != [0, 0])
}

/// Whether the fields of an IPv4 header agree: lengths, the checksum if it has one, and a time to live.
fn is_v4(bytes: &[u8]) -> bool {
    let Some(&[first, _, a, b, _, _, _, _, ttl, ..]) = bytes.first_chunk::<20>() else {
        return false;
    };
    let header_bytes = usize::from(first & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([a, b]));
    if first >> 4 != 4 || header_bytes < 20 || total < header_bytes || ttl == 0 {
        return false;
    }
    // The sum of a header with its checksum is all ones (RFC 1071).
    let Some(header) = bytes.get(..header_bytes) else { return true };
    let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !has_checksum(bytes) || (folded & 0xffff) + (folded >> 16) == 0xffff
}

/// Whether the fields of an IPv6 header agree: a next header and addresses that are assigned, and a hop limit.
fn is_v6(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<40>() else { return false };
    let payload_bytes = u16::from_be_bytes([header[4], header[5]]);
    let next = header[6];
    // Nothing, or a jumbogram, has no length.
    let is_length = payload_bytes > 0 || matches!(next, 0 | 59);
    let is_next = matches!(
        next,
        0 | 4
            | 6
            | 17
            | 33
            | 41
            | 43
            | 44
            | 47
            | 50
            | 51
            | 58
            | 59
            | 60
            | 89
            | 103
            | 112
            | 132
            | 135
            | 136
            | 137
            | 139
            | 140
            | 143
    );
    let src = [header[8], header[9]];
    let dst = [header[24], header[25]];
    header[0] >> 4 == 6
        && is_length
        && is_next
        && header[7] > 0
        && is_unicast(src)
        && (is_unicast(dst) || dst[0] == 0xff)
}

/// Whether an IPv6 address that begins like this is assigned (RFC 4291, IANA's registry): global, unique local, link local,
/// unspecified or embedded, translated.
const fn is_unicast(address: [u8; 2]) -> bool {
    let [a, b] = address;
    a >> 5 == 1
        || a & 0xfe == 0xfc
        || (a == 0xfe && b & 0xc0 == 0x80)
        || (a == 0 && (b == 0 || b == 0x64))
}
