//! The layers before IP: Ethernet, VLAN tags, MPLS labels, PPP.

use super::{Network, Next, Packet, guess};
use crate::sflow::Mac;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const MPLS: u16 = 0x8847;
pub(super) const ETHERNET: u16 = 0x6558;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;
/// Cisco's tag of virtual interfaces, before it was IEEE's E-TAG.
const VN_TAG: u16 = 0x8926;
/// IEEE 802.1BR.
const E_TAG: u16 = 0x893f;
/// Cisco's metadata: a security group.
const CISCO_METADATA: u16 = 0x8909;
/// The service tag of a provider's backbone, followed by the customer's frame (IEEE 802.1ah).
const BACKBONE_SERVICE: u16 = 0x88e7;
/// Below this, the field is a length instead of a type (IEEE 802.3).
const FIRST_ETHERTYPE: u16 = 0x600;

/// The two addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacPair {
    /// Source.
    pub src: Mac,
    /// Destination.
    pub dst: Mac,
}

/// A VLAN tag (IEEE 802.1Q).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vlan {
    /// Which kind of tag: 0x8100, 0x88a8, 0x9100, 0x9200, 0x9300.
    pub tpid: u16,
    /// Priority, drop eligibility and VLAN.
    pub tci: u16,
}

impl Vlan {
    /// The VLAN; 0 means none, when the tag only carries a priority.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.tci & 0xfff
    }

    /// The priority, 0 to 7.
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }
}

/// MPLS labels, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MplsStack {
    entries: [u32; Self::KEPT],
    count: u8,
}

impl MplsStack {
    /// Entries that are kept; the rest of a deeper stack is only counted.
    pub const KEPT: usize = 4;

    /// The kept labels, outermost first.
    pub fn labels(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().take(self.count.into()).map(|entry| entry >> 12)
    }

    /// The number of entries in the stack, as far as it was sampled.
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }

    fn push(&mut self, entry: u32) {
        if let Some(place) = self.entries.get_mut(usize::from(self.count)) {
            *place = entry;
        }
        self.count = self.count.saturating_add(1);
    }
}

/// Parses up to the network header. Only an ethertype says that there is IP: other frames begin with any bits.
#[inline]
pub(super) fn read<'a>(next: Next<'a>, packet: &mut Packet) -> Network<'a> {
    let next = match next {
        Next::Ethernet(bytes) => ethernet(bytes, packet),
        Next::Ppp(bytes) => ppp(bytes),
        Next::Type(ethertype, bytes) => shims(ethertype, bytes, packet),
        Next::Bare(bytes) => return guess::packet(bytes),
    };
    let Some((ethertype, bytes)) = next else { return Network::Other(&[]) };
    packet.ethertype = Some(ethertype);

    match ethertype {
        IPV4 => Network::Ip(4, bytes),
        IPV6 => Network::Ip(6, bytes),
        MPLS | MPLS_MULTICAST => labels(bytes, &mut packet.mpls),
        // Version, code, session, length.
        PPPOE_SESSION => match bytes.get(6..).and_then(ppp) {
            Some((IPV4, bytes)) => Network::Ip(4, bytes),
            Some((IPV6, bytes)) => Network::Ip(6, bytes),
            Some((MPLS, bytes)) => labels(bytes, &mut packet.mpls),
            _ => Network::Other(&[]),
        },
        _ => Network::Other(bytes),
    }
}

/// Ethernet's addresses and what stands behind them. Returns the type of what the frame carries, and that.
#[inline]
pub(super) fn ethernet<'a>(bytes: &'a [u8], packet: &mut Packet) -> Option<(u16, &'a [u8])> {
    let (macs, bytes) = macs(bytes)?;
    packet.macs = Some(macs);
    let (ethertype, bytes) = u16_of(bytes)?;
    if ethertype == IPV4 || ethertype == IPV6 {
        return Some((ethertype, bytes));
    }
    shims(ethertype, bytes, packet)
}

fn macs(bytes: &[u8]) -> Option<(MacPair, &[u8])> {
    let (addresses, bytes) = bytes.split_first_chunk::<12>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
    Some((
        MacPair { src: Mac([s0, s1, s2, s3, s4, s5]), dst: Mac([d0, d1, d2, d3, d4, d5]) },
        bytes,
    ))
}

/// Skips what stands between Ethernet's addresses and the type of what it carries.
fn shims<'a>(
    mut ethertype: u16,
    mut bytes: &'a [u8],
    packet: &mut Packet,
) -> Option<(u16, &'a [u8])> {
    // Each has at least two bytes, so the bytes limit their number.
    loop {
        match ethertype {
            0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => {
                let tci;
                (tci, bytes) = u16_of(bytes)?;
                let tag = Vlan { tpid: ethertype, tci };
                if packet.vlan.is_none() {
                    packet.vlan = Some(tag);
                } else if packet.inner_vlan.is_none() {
                    packet.inner_vlan = Some(tag);
                }
            }
            VN_TAG => bytes = bytes.get(4..)?,
            E_TAG | CISCO_METADATA => bytes = bytes.get(6..)?,
            BACKBONE_SERVICE => {
                let (&[_, a, b, c], rest) = bytes.split_first_chunk()?;
                packet.service.get_or_insert(u32::from_be_bytes([0, a, b, c]));
                let of_customer;
                (of_customer, bytes) = macs(rest)?;
                packet.tunnel_macs.get_or_insert(of_customer);
            }
            ..FIRST_ETHERTYPE => return snap(bytes),
            _ => return Some((ethertype, bytes)),
        }
        (ethertype, bytes) = u16_of(bytes)?;
    }
}

/// The type after an 802.2 header with SNAP and without an organization.
fn snap(bytes: &[u8]) -> Option<(u16, &[u8])> {
    u16_of(bytes.strip_prefix(&[0xaa, 0xaa, 3, 0, 0, 0])?)
}

/// The ethertype of what PPP carries; with or without HDLC's address and control field before it (RFC 1661, RFC 1662), or in
/// Cisco's HDLC format.
fn ppp(bytes: &[u8]) -> Option<(u16, &[u8])> {
    if let Some(bytes) = bytes.strip_prefix(&[0x0f, 0]) {
        return u16_of(bytes);
    }
    let bytes = bytes.strip_prefix(&[0xff, 3]).unwrap_or(bytes);
    // Numbers end with an odd byte. Where both ends have agreed on it, the first one, which is even, is left out (RFC 1661, section 6.5).
    let (protocol, bytes) = match bytes {
        [number, rest @ ..] if number % 2 == 1 => (u16::from(*number), rest),
        _ => u16_of(bytes)?,
    };
    let ethertype = match protocol {
        0x0021 => IPV4,
        0x0057 => IPV6,
        0x0281 => MPLS,
        _ => return None,
    };
    Some((ethertype, bytes))
}

/// Reads labels up to the bottom of the stack. Nothing says what follows.
fn labels<'a>(mut bytes: &'a [u8], mpls: &mut MplsStack) -> Network<'a> {
    const BOTTOM: u32 = 1 << 8;
    while let Some((entry, rest)) = bytes.split_first_chunk() {
        let entry = u32::from_be_bytes(*entry);
        mpls.push(entry);
        bytes = rest;
        if entry & BOTTOM != 0 {
            return guess::behind_labels(bytes);
        }
    }
    Network::Other(&[])
}

fn u16_of(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*first), rest))
}
