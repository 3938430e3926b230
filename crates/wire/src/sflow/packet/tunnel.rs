//! Packets within packets.

use super::Next;
use super::ip::{Ip, UDP};
use super::link::{ETHERNET, IPV4, IPV6, MPLS};

/// The tunnel that carries another packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// IP in IP: 4in4, 6in4, 4in6, 6in6.
    Ip,
    /// GRE (RFC 2784, RFC 2890), NVGRE.
    Gre {
        /// The sender's key for telling flows apart. Its upper 24 bits are the virtual network if Ethernet follows (RFC
        /// 7637).
        key: Option<u32>,
        /// The virtual network, if Ethernet follows.
        vni: Option<u32>,
    },
    /// VXLAN (RFC 7348).
    Vxlan {
        /// The virtual network.
        vni: u32,
    },
    /// Geneve (RFC 8926).
    Geneve {
        /// The virtual network.
        vni: u32,
    },
    /// Ethernet over MPLS (RFC 4448).
    Pseudowire,
    /// Ethernet over IP (RFC 3378), or in IPv6 (RFC 8986).
    Ethernet,
    /// MPLS over IP or UDP (RFC 4023, RFC 7510).
    Mpls,
    /// A mirrored frame (ERSPAN).
    Mirror {
        /// The session, from type II on.
        session: Option<u16>,
    },
    /// A user's packet in a mobile network (GTP-U, 3GPP TS 29.281).
    Gtp {
        /// The tunnel's end.
        teid: u32,
    },
}

impl Tunnel {
    /// The virtual network.
    #[must_use]
    pub const fn vni(self) -> Option<u32> {
        match self {
            Self::Vxlan { vni } | Self::Geneve { vni } => Some(vni),
            Self::Gre { vni, .. } => vni,
            Self::Ip
            | Self::Pseudowire
            | Self::Ethernet
            | Self::Mpls
            | Self::Mirror { .. }
            | Self::Gtp { .. } => None,
        }
    }
}

const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const VXLAN_PORT: u16 = 4789;
/// Linux used this port before one was assigned.
const VXLAN_LINUX_PORT: u16 = 8472;
const GENEVE_PORT: u16 = 6081;
const VXLAN_GPE_PORT: u16 = 4790;
const GTP_PORT: u16 = 2152;
const MPLS_PORT: u16 = 6635;
const ETHER_IP: u8 = 97;
const MPLS_IN_IP: u8 = 137;
const ETHERNET_IN_IPV6: u8 = 143;
/// GRE's protocols for mirrored frames.
const ERSPAN: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;

/// The tunnel in `ip`, by its protocol and destination port, and its contents.
#[inline]
pub(super) fn read<'a>(ip: &Ip, payload: &'a [u8]) -> Option<(Tunnel, Next<'a>)> {
    if ip.is_later_fragment() {
        return None;
    }
    match ip.protocol {
        IP_IN_IP => Some((Tunnel::Ip, Next::Type(IPV4, payload))),
        IPV6_IN_IP => Some((Tunnel::Ip, Next::Type(IPV6, payload))),
        GRE => gre(payload),
        ETHER_IP => Some((Tunnel::Ethernet, Next::Ethernet(payload.strip_prefix(&[0x30, 0])?))),
        ETHERNET_IN_IPV6 => Some((Tunnel::Ethernet, Next::Ethernet(payload))),
        MPLS_IN_IP => Some((Tunnel::Mpls, Next::Type(MPLS, payload))),
        UDP => {
            const UDP_HEADER_BYTES: usize = 8;
            let payload = payload.get(UDP_HEADER_BYTES..)?;
            match ip.ports?.dst {
                VXLAN_PORT | VXLAN_LINUX_PORT => vxlan(payload),
                GENEVE_PORT => geneve(payload),
                VXLAN_GPE_PORT => vxlan_gpe(payload),
                GTP_PORT => gtp(payload),
                MPLS_PORT => Some((Tunnel::Mpls, Next::Type(MPLS, payload))),
                _ => None,
            }
        }
        _ => None,
    }
}

fn gre(bytes: &[u8]) -> Option<(Tunnel, Next<'_>)> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const VERSION: u16 = 7;
    let (&[a, b, c, d], mut rest) = bytes.split_first_chunk()?;
    let (flags, ethertype) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    // Version 1 is PPTP's.
    if flags & VERSION != 0 {
        return None;
    }

    let mut word = |flag| {
        if flags & flag == 0 {
            return Some(None);
        }
        let (word, behind) = rest.split_first_chunk()?;
        rest = behind;
        Some(Some(u32::from_be_bytes(*word)))
    };
    word(CHECKSUM)?;
    let key = word(KEY)?;
    let sequence = word(SEQUENCE)?;
    if ethertype == ERSPAN || ethertype == ERSPAN_III {
        return erspan(ethertype, sequence, rest);
    }

    let carries_ethernet = ethertype == ETHERNET;
    let next = if carries_ethernet { Next::Ethernet(rest) } else { Next::Type(ethertype, rest) };
    let vni = key.filter(|_| carries_ethernet).map(|key| key >> 8);
    Some((Tunnel::Gre { key, vni }, next))
}

fn vxlan(bytes: &[u8]) -> Option<(Tunnel, Next<'_>)> {
    const HAS_VNI: u8 = 8;
    let (&[flags, _, _, _, a, b, c, _], rest) = bytes.split_first_chunk()?;
    let vni = u32::from_be_bytes([0, a, b, c]);
    (flags & HAS_VNI != 0).then_some((Tunnel::Vxlan { vni }, Next::Ethernet(rest)))
}

fn geneve(bytes: &[u8]) -> Option<(Tunnel, Next<'_>)> {
    let (&[first, _, c, d, e, f, g, _], rest) = bytes.split_first_chunk()?;
    // The upper two bits are the version, 0; the others the length of the options, in words.
    if first >> 6 != 0 {
        return None;
    }
    let rest = rest.get(usize::from(first) * 4..)?;
    let vni = u32::from_be_bytes([0, e, f, g]);
    let next = match u16::from_be_bytes([c, d]) {
        ETHERNET => Next::Ethernet(rest),
        ethertype => Next::Type(ethertype, rest),
    };
    Some((Tunnel::Geneve { vni }, next))
}

/// A mirrored frame, behind the header of ERSPAN. Type I has none, and no number in GRE.
fn erspan(protocol: u16, sequence: Option<u32>, bytes: &[u8]) -> Option<(Tunnel, Next<'_>)> {
    const TYPE_II_BYTES: usize = 8;
    const TYPE_III_BYTES: usize = 12;
    const PLATFORM_BYTES: usize = 8;
    if protocol == ERSPAN && sequence.is_none() {
        return Some((Tunnel::Mirror { session: None }, Next::Ethernet(bytes)));
    }
    let &[version, _, c, d] = bytes.first_chunk()?;
    let session = Some(u16::from_be_bytes([c, d]) & 0x3ff);
    let header_bytes = match (protocol, version >> 4) {
        (ERSPAN, 1) => TYPE_II_BYTES,
        (ERSPAN_III, 2) => {
            // The last bit says that a part for the platform follows.
            let has_more = bytes.get(TYPE_III_BYTES - 1)? & 1 != 0;
            TYPE_III_BYTES + if has_more { PLATFORM_BYTES } else { 0 }
        }
        _ => return None,
    };
    Some((Tunnel::Mirror { session }, Next::Ethernet(bytes.get(header_bytes..)?)))
}

/// VXLAN that says what follows (draft-ietf-nvo3-vxlan-gpe).
fn vxlan_gpe(bytes: &[u8]) -> Option<(Tunnel, Next<'_>)> {
    const HAS_VNI: u8 = 8;
    const HAS_PROTOCOL: u8 = 4;
    let (&[flags, _, _, protocol, a, b, c, _], rest) = bytes.split_first_chunk()?;
    if flags & HAS_VNI == 0 {
        return None;
    }
    let next = match protocol {
        1 if flags & HAS_PROTOCOL != 0 => Next::Type(IPV4, rest),
        2 if flags & HAS_PROTOCOL != 0 => Next::Type(IPV6, rest),
        3 => Next::Ethernet(rest),
        _ if flags & HAS_PROTOCOL == 0 => Next::Ethernet(rest),
        _ => return None,
    };
    Some((Tunnel::Vxlan { vni: u32::from_be_bytes([0, a, b, c]) }, next))
}

/// A user's packet behind the header of GTP-U and its extensions.
fn gtp(bytes: &[u8]) -> Option<(Tunnel, Next<'_>)> {
    /// Version 1, and not charging.
    const VERSION: u8 = 0x30;
    const USER_PACKET: u8 = 255;
    let (&[flags, kind, _, _, a, b, c, d], mut rest) = bytes.split_first_chunk()?;
    if flags & 0xf0 != VERSION || kind != USER_PACKET {
        return None;
    }
    if flags & 7 != 0 {
        // A number, a number of a packet, and the type of the first extension.
        let (&[_, _, _, mut extension], behind) = rest.split_first_chunk()?;
        rest = behind;
        if flags & 4 == 0 {
            extension = 0;
        }
        // Each is at least four bytes long, so the bytes limit their number.
        while extension != 0 {
            let extension_bytes = usize::from(*rest.first()?) * 4;
            if extension_bytes == 0 {
                return None;
            }
            extension = *rest.get(extension_bytes - 1)?;
            rest = rest.get(extension_bytes..)?;
        }
    }
    Some((Tunnel::Gtp { teid: u32::from_be_bytes([a, b, c, d]) }, Next::Bare(rest)))
}
