//! UDP datagrams in a capture of an interface.

use super::{
    COOKED_BYTES, COOKED2_BYTES, LINKTYPE_LINUX_SLL, LINKTYPE_LINUX_SLL2, OTHER_FORMATS, Packet,
    Packets, pcap, pcapng,
};
use crate::DecodeError;
use crate::bytes::at;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `LINKTYPE_NULL` and `LINKTYPE_LOOP`: four bytes before the packet.
const LINKTYPE_NULL: u16 = 0;
const LINKTYPE_LOOP: u16 = 108;
const LINKTYPE_ETHERNET: u16 = 1;
/// `LINKTYPE_RAW` (both of its numbers), `LINKTYPE_IPV4`, `LINKTYPE_IPV6`.
const LINKTYPES_IP: [u16; 4] = [12, 101, 228, 229];

/// IP protocol number of UDP.
const UDP: u8 = 17;

/// A datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// When it was captured, in nanoseconds since 1970.
    pub time_unix_ns: Option<u64>,
    /// The sender.
    pub src: SocketAddr,
    /// The receiver.
    pub dst: SocketAddr,
    /// The payload.
    pub payload: &'a [u8],
}

/// The datagrams of a capture, in file order. A broken container gives one error and ends.
#[derive(Clone, Debug)]
pub struct Datagrams<'a> {
    packets: Packets<'a>,
    skipped_packets: u64,
    partial_packets: u64,
}

/// Opens a pcap or pcapng file of an interface that is entirely in memory.
///
/// # Errors
/// [`DecodeError::UnknownFormat`], [`DecodeError::OtherFormat`], [`DecodeError::WrongLinkType`], or [`DecodeError::Truncated`]
/// for a file that ends inside its header.
pub fn datagrams(file: &[u8]) -> Result<Datagrams<'_>, DecodeError> {
    if let Some((_, which)) = OTHER_FORMATS.iter().find(|(magic, _)| file.starts_with(magic)) {
        return Err(DecodeError::OtherFormat(which));
    }
    let magic: &[u8; 4] = file.first_chunk().ok_or(DecodeError::UnknownFormat)?;
    let packets = if let Some(kind) = pcap::kind(*magic) {
        Packets::Pcap(pcap::Packets::new(file, kind, may_carry_ip)?)
    } else if pcapng::is_magic(*magic) {
        Packets::PcapNg(pcapng::Packets::new(file, may_carry_ip))
    } else {
        return Err(DecodeError::UnknownFormat);
    };
    Ok(Datagrams { packets, skipped_packets: 0, partial_packets: 0 })
}

impl Datagrams<'_> {
    /// Packets so far that were not UDP.
    #[must_use]
    pub const fn skipped_packets(&self) -> u64 {
        self.skipped_packets
    }

    /// UDP packets so far that are fragments, or were not captured completely.
    #[must_use]
    pub const fn partial_packets(&self) -> u64 {
        self.partial_packets
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Result<Datagram<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let packet = match &mut self.packets {
                Packets::None => None,
                Packets::Pcap(packets) => packets.next(),
                Packets::PcapNg(packets) => packets.next(),
            };
            let packet = match packet? {
                Ok(packet) => packet,
                Err(error) => return Some(Err(error)),
            };
            match datagram(&packet) {
                Content::Datagram(datagram) => return Some(Ok(datagram)),
                Content::Partial => self.partial_packets += 1,
                Content::Other => self.skipped_packets += 1,
            }
        }
    }
}

enum Content<'a> {
    Datagram(Datagram<'a>),
    /// UDP, but incomplete.
    Partial,
    Other,
}

fn datagram<'a>(packet: &Packet<'a>) -> Content<'a> {
    let Some(ip) = behind_link(packet) else { return Content::Other };
    let Some(carried) = behind_ip(ip) else { return Content::Other };
    if carried.is_fragment {
        return Content::Partial;
    }

    let Some((head, rest)) = carried.bytes.split_first_chunk::<8>() else {
        return Content::Partial;
    };
    let [src, dst, length] =
        [at::<0, 2, 8>(head), at::<2, 2, 8>(head), at::<4, 2, 8>(head)].map(u16::from_be_bytes);
    let len = usize::from(length).checked_sub(head.len());
    let Some(payload) = len.and_then(|len| rest.get(..len)) else { return Content::Partial };
    Content::Datagram(Datagram {
        time_unix_ns: packet.time_unix_ns,
        src: SocketAddr::new(carried.src, src),
        dst: SocketAddr::new(carried.dst, dst),
        payload,
    })
}

fn may_carry_ip(link_type: u16) -> bool {
    const LINKS: [u16; 5] =
        [LINKTYPE_NULL, LINKTYPE_LOOP, LINKTYPE_ETHERNET, LINKTYPE_LINUX_SLL, LINKTYPE_LINUX_SLL2];
    LINKS.contains(&link_type) || LINKTYPES_IP.contains(&link_type)
}

/// The bytes starting at the IP header.
fn behind_link<'a>(packet: &Packet<'a>) -> Option<&'a [u8]> {
    let bytes = packet.bytes;
    match packet.link_type {
        LINKTYPE_NULL | LINKTYPE_LOOP => bytes.get(4..),
        LINKTYPE_LINUX_SLL => bytes.get(COOKED_BYTES..),
        LINKTYPE_LINUX_SLL2 => bytes.get(COOKED2_BYTES..),
        LINKTYPE_ETHERNET => behind_ethernet(bytes.get(12..)?),
        link_type if LINKTYPES_IP.contains(&link_type) => Some(bytes),
        _ => None,
    }
}

/// Skips tags up to IP. `bytes` begins with the frame's type.
fn behind_ethernet(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (ethertype, rest) = bytes.split_first_chunk::<2>()?;
        match u16::from_be_bytes(*ethertype) {
            0x8100 | 0x88a8 | 0x9100 => bytes = rest.get(2..)?,
            0x0800 | 0x86dd => return Some(rest),
            _ => return None,
        }
    }
}

struct Carried<'a> {
    src: IpAddr,
    dst: IpAddr,
    is_fragment: bool,
    bytes: &'a [u8],
}

/// The UDP payload of an IP packet.
fn behind_ip(bytes: &[u8]) -> Option<Carried<'_>> {
    match bytes.first()? >> 4 {
        4 => {
            let head = bytes.first_chunk::<20>()?;
            let is_fragment = u16::from_be_bytes(at::<6, 2, 20>(head)) & 0x3fff != 0;
            Some(Carried {
                src: Ipv4Addr::from(at::<12, 4, 20>(head)).into(),
                dst: Ipv4Addr::from(at::<16, 4, 20>(head)).into(),
                is_fragment,
                bytes: bytes.get(usize::from(head[0] & 0xf) * 4..)?,
            })
            .filter(|_| head[9] == UDP)
        }
        6 => {
            const FRAGMENT: u8 = 44;
            let (head, rest) = bytes.split_first_chunk::<40>()?;
            let is_fragment = head[6] == FRAGMENT && rest.first() == Some(&UDP);
            Some(Carried {
                src: Ipv6Addr::from(at::<8, 16, 40>(head)).into(),
                dst: Ipv6Addr::from(at::<24, 16, 40>(head)).into(),
                is_fragment,
                bytes: rest,
            })
            .filter(|_| head[6] == UDP || is_fragment)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pcap file with one frame.
    fn pcap(link_type: u32, frame: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, link_type] {
            file.extend(word.to_le_bytes());
        }
        for word in [1_700_000_000, 5, frame.len() as u32, frame.len() as u32] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend(frame);
        file
    }

    /// A UDP datagram "hello" over IPv4, from 10.0.0.1:1000 to 10.0.0.2:6343.
    fn ipv4(flags: u8) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 33, 0, 0, flags, 0, 64, 17, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x03, 0xe8, 0x18, 0xc7, 0, 13, 0, 0]);
        bytes.extend(b"hello");
        bytes
    }

    fn ethernet(tags: &[u8], ethertype: [u8; 2], rest: &[u8]) -> Vec<u8> {
        [&[0; 12], tags, &ethertype, rest].concat()
    }

    fn read(file: &[u8]) -> (Vec<Vec<u8>>, u64, u64) {
        let mut all = datagrams(file).unwrap();
        let payloads = all.by_ref().map(|one| one.unwrap().payload.to_vec()).collect();
        (payloads, all.skipped_packets(), all.partial_packets())
    }

    #[test]
    fn datagrams_are_found_behind_every_link() {
        let hello = vec![b"hello".to_vec()];
        for (link_type, frame) in [
            (1, ethernet(&[], [8, 0], &ipv4(0))),
            (1, ethernet(&[0x81, 0, 0, 5, 0x88, 0xa8, 0, 6], [8, 0], &ipv4(0))),
            (101, ipv4(0)),
            (0, [&[2, 0, 0, 0][..], &ipv4(0)].concat()),
            (113, [&[0; 16][..], &ipv4(0)].concat()),
            (276, [&[0; 20][..], &ipv4(0)].concat()),
        ] {
            assert_eq!(read(&pcap(link_type, &frame)), (hello.clone(), 0, 0), "{link_type}");
        }
        let file = pcap(1, &ethernet(&[], [8, 0], &ipv4(0)));
        let one = datagrams(&file).unwrap().next().unwrap().unwrap();
        assert_eq!(one.dst, "10.0.0.2:6343".parse().unwrap());
        assert_eq!(one.time_unix_ns, Some(1_700_000_000_000_005_000));
    }

    #[test]
    fn what_is_not_whole_or_not_udp_is_counted() {
        let of = |frame: &[u8]| read(&pcap(101, frame));
        assert_eq!(of(&ipv4(0x20)), (vec![], 0, 1));
        let whole = ipv4(0);
        assert_eq!(of(&whole[..whole.len() - 1]), (vec![], 0, 1));
        let tcp: Vec<u8> =
            whole.iter().enumerate().map(|(at, byte)| if at == 9 { 6 } else { *byte }).collect();
        assert_eq!(of(&tcp), (vec![], 1, 0));
        for len in 0..20 {
            assert_eq!(of(&whole[..len]), (vec![], 1, 0), "{len}");
        }
        assert!(datagrams(b"no capture").is_err());
    }
}
