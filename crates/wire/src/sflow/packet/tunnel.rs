//! Packets within packets.

use super::Next;
use super::ip::{Ip, UDP};
use super::link::{ETHERNET, IPV4, IPV6};

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
}

impl Tunnel {
    /// The virtual network.
    #[must_use]
    pub const fn vni(self) -> Option<u32> {
        match self {
            Self::Vxlan { vni } | Self::Geneve { vni } => Some(vni),
            Self::Gre { vni, .. } => vni,
            Self::Ip => None,
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
        UDP => {
            const UDP_HEADER_BYTES: usize = 8;
            let payload = payload.get(UDP_HEADER_BYTES..)?;
            match ip.ports?.dst {
                VXLAN_PORT | VXLAN_LINUX_PORT => vxlan(payload),
                GENEVE_PORT => geneve(payload),
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
    word(SEQUENCE)?;

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
