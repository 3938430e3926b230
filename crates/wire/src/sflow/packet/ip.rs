//! IP and the ports after it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::at;

/// An IP header, and the first fields of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// The protocol of its payload, after the extension headers that were sampled.
    pub protocol: u8,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// Type of service, traffic class: see [`dscp`](Self::dscp) and [`ecn`](Self::ecn).
    pub tos: u8,
    /// The flow label of IPv6.
    pub flow_label: u32,
    /// Length of the packet including this header, in bytes; 0 if the sender left it to its network card.
    pub length_bytes: u32,
    /// Which fragment this is, if the packet is fragmented.
    pub fragment: Option<Fragment>,
    /// Ports of TCP, UDP, SCTP and DCCP. Absent in all fragments but the first.
    pub ports: Option<Ports>,
    /// Flags of TCP: FIN is 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub tcp_flags: Option<u8>,
    /// ICMP or ICMPv6.
    pub icmp: Option<Icmp>,
}

/// A fragment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Shared by the fragments of one packet.
    pub id: u32,
    /// Its offset in the packet.
    pub offset_bytes: u16,
    /// Whether more fragments follow.
    pub has_more: bool,
}

/// Ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// Source.
    pub src: u16,
    /// Destination.
    pub dst: u16,
}

/// What an ICMP message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const DCCP: u8 = 33;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

impl Ip {
    /// The differentiated services code point, 0 to 63.
    #[must_use]
    pub const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// The ECN bits: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    #[must_use]
    pub const fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Whether this is a fragment without a transport header.
    #[must_use]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset_bytes > 0)
    }

    /// Parses an IP header of this version into `place`, and returns its payload. `None` if it is of another, or incomplete.
    #[inline]
    pub(super) fn read<'p, 'a>(
        version: u8,
        bytes: &'a [u8],
        place: &'p mut Option<Self>,
    ) -> Option<(&'p Self, &'a [u8])> {
        if bytes.first()? >> 4 != version {
            return None;
        }
        let (ip, payload) = match version {
            4 => {
                let (ip, payload) = Self::v4(bytes)?;
                (place.insert(ip), payload)
            }
            6 => {
                let (ip, payload) = Self::v6(bytes)?;
                (place.insert(ip), payload)
            }
            _ => return None,
        };
        if !ip.is_later_fragment() {
            ip.transport(payload);
        }
        Some((ip, payload))
    }

    #[inline]
    fn v4(bytes: &[u8]) -> Option<(Self, &[u8])> {
        const MORE: u16 = 0x2000;
        const OFFSET: u16 = 0x1fff;
        let header = bytes.first_chunk::<20>()?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        if header_bytes < header.len() {
            return None;
        }

        let flags = u16::from_be_bytes(at::<6, 2, _>(header));
        let fragment = (flags & (MORE | OFFSET) != 0).then(|| Fragment {
            id: u16::from_be_bytes(at::<4, 2, _>(header)).into(),
            offset_bytes: (flags & OFFSET) * 8,
            has_more: flags & MORE != 0,
        });
        let mut ip = Self {
            src: Ipv4Addr::from(at::<12, 4, _>(header)).into(),
            dst: Ipv4Addr::from(at::<16, 4, _>(header)).into(),
            protocol: header[9],
            ttl: header[8],
            tos: header[1],
            flow_label: 0,
            length_bytes: u16::from_be_bytes(at::<2, 2, _>(header)).into(),
            fragment,
            ports: None,
            tcp_flags: None,
            icmp: None,
        };
        let payload = bytes.get(header_bytes..).unwrap_or_default();
        let is_v4_extension = |protocol| protocol == AUTHENTICATION;
        let payload = ip.extensions(payload, is_v4_extension);
        Some((ip, payload))
    }

    #[inline]
    fn v6(bytes: &[u8]) -> Option<(Self, &[u8])> {
        const HEADER_BYTES: usize = 40;
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let first = u32::from_be_bytes(at::<0, 4, _>(header));
        let length = u32::from(u16::from_be_bytes(at::<4, 2, _>(header)));
        let mut ip = Self {
            src: Ipv6Addr::from(at::<8, 16, _>(header)).into(),
            dst: Ipv6Addr::from(at::<24, 16, _>(header)).into(),
            protocol: header[6],
            ttl: header[7],
            tos: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            // A jumbogram has length 0.
            length_bytes: if length == 0 { 0 } else { length + HEADER_BYTES as u32 },
            fragment: None,
            ports: None,
            tcp_flags: None,
            icmp: None,
        };
        let payload = ip.extensions(rest, is_v6_extension);
        Some((ip, payload))
    }

    /// Skips extension headers, and returns what follows them. If one is truncated, `protocol` is its number and nothing follows.
    #[inline]
    fn extensions<'a>(
        &mut self,
        mut bytes: &'a [u8],
        is_extension: impl Fn(u8) -> bool,
    ) -> &'a [u8] {
        // Each is at least eight bytes long, so the bytes limit their number. Later fragments begin with none.
        while is_extension(self.protocol) && !self.is_later_fragment() {
            let Some(header) = bytes.first_chunk::<8>() else { return &[] };
            let header_bytes = match self.protocol {
                AUTHENTICATION => 8 + usize::from(header[1]) * 4,
                FRAGMENT => {
                    self.fragment = Some(v6_fragment(header));
                    8
                }
                _ => 8 + usize::from(header[1]) * 8,
            };
            let Some(next) = bytes.get(header_bytes..) else { return &[] };
            self.protocol = header[0];
            bytes = next;
        }
        bytes
    }

    #[inline]
    fn transport(&mut self, payload: &[u8]) {
        match self.protocol {
            TCP | UDP | SCTP | DCCP => {
                self.ports = payload.first_chunk::<4>().map(|ports| Ports {
                    src: u16::from_be_bytes(at::<0, 2, _>(ports)),
                    dst: u16::from_be_bytes(at::<2, 2, _>(ports)),
                });
                if self.protocol == TCP {
                    self.tcp_flags = payload.get(13).copied();
                }
            }
            ICMP | ICMPV6 => {
                self.icmp = payload
                    .first_chunk::<2>()
                    .map(|[kind, code]| Icmp { kind: *kind, code: *code });
            }
            _ => {}
        }
    }
}

/// Hop by hop, routing, fragment, authentication, destination options, mobility, host identity, shim6 (RFC 8200). In IPv4, an
/// authentication header is all that stands between the header and what it carries (RFC 4302).
const fn is_v6_extension(protocol: u8) -> bool {
    matches!(protocol, 0 | 43 | FRAGMENT | AUTHENTICATION | 60 | 135 | 139 | 140)
}

fn v6_fragment(header: &[u8; 8]) -> Fragment {
    let offset = u16::from_be_bytes(at::<2, 2, _>(header));
    Fragment {
        id: u32::from_be_bytes(at::<4, 4, _>(header)),
        // The lowest three bits are not part of the offset, which counts in units of eight bytes.
        offset_bytes: offset & !7,
        has_more: offset & 1 != 0,
    }
}
