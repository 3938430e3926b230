//! The first bytes of a packet, as far as they were sampled.

mod ip;
mod link;
mod tunnel;

pub use ip::{Fragment, Icmp, Ip, Ports};
pub use link::{MacPair, MplsStack, Vlan};
pub use tunnel::Tunnel;

/// What the first bytes of a packet say. What they do not reach, or what is not known here, is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Packet {
    /// Ethernet addresses.
    pub macs: Option<MacPair>,
    /// The outermost VLAN tag.
    pub vlan: Option<Vlan>,
    /// The second VLAN tag.
    pub inner_vlan: Option<Vlan>,
    /// MPLS labels.
    pub mpls: MplsStack,
    /// What follows the VLAN tags, as Ethernet numbers it.
    pub ethertype: Option<u16>,
    /// Bytes in front of the network header: Ethernet, tags, labels.
    pub link_bytes: u16,
    /// The outermost IP header and what it carries.
    pub ip: Option<Ip>,
    /// What the packet carries another one in.
    pub tunnel: Option<Tunnel>,
    /// Ethernet addresses within the tunnel.
    pub tunnel_macs: Option<MacPair>,
    /// The VLAN tag within the tunnel.
    pub tunnel_vlan: Option<Vlan>,
    /// The IP header within the tunnel and what it carries.
    pub inner: Option<Ip>,
    /// Tunnels within the tunnel, which are not read.
    pub further_tunnels: u8,
}

/// How a sampled header begins (`header_protocol`).
const ETHERNET: u32 = 1;
const PPP: u32 = 7;
const IPV4: u32 = 11;
const IPV6: u32 = 12;
const MPLS: u32 = 13;
const POS: u32 = 14;

/// What comes next, and the bytes from there on.
#[derive(Clone, Copy)]
enum Next<'a> {
    Ethernet(&'a [u8]),
    /// By Ethernet's number.
    Type(u16, &'a [u8]),
    Ppp(&'a [u8]),
}

impl Packet {
    /// Reads the header of a sample. `protocol` is what the header begins with, as sFlow numbers it: 1 Ethernet, 7 PPP, 11 IPv4,
    /// 12 IPv6, 13 MPLS, 14 POS; of others, nothing is read.
    #[must_use]
    #[inline]
    pub fn parse(protocol: u32, header: &[u8]) -> Self {
        let next = match protocol {
            ETHERNET => Next::Ethernet(header),
            PPP | POS => Next::Ppp(header),
            IPV4 => Next::Type(link::IPV4, header),
            IPV6 => Next::Type(link::IPV6, header),
            MPLS => Next::Type(link::MPLS, header),
            _ => return Self::default(),
        };
        Self::read(next, header.len())
    }

    #[inline]
    fn read(next: Next<'_>, len: usize) -> Self {
        let mut packet = Self::default();
        let (link, network) = link::read(next);
        packet.macs = link.macs;
        packet.vlan = link.vlan;
        packet.inner_vlan = link.inner_vlan;
        packet.mpls = link.mpls;
        packet.ethertype = link.ethertype;
        packet.link_bytes = u16::try_from(len - network.len()).unwrap_or(u16::MAX);

        let Some((ip, payload)) = Ip::read(network) else { return packet };
        packet.ip = Some(ip);
        if let Some((tunnel, next)) = tunnel::read(&ip, payload) {
            packet.tunnel = Some(tunnel);
            packet.read_inner(next);
        }
        packet
    }

    fn read_inner(&mut self, next: Next<'_>) {
        let (link, network) = link::read(next);
        self.tunnel_macs = link.macs;
        self.tunnel_vlan = link.vlan;
        let Some((ip, mut payload)) = Ip::read(network) else { return };
        self.inner = Some(ip);

        // Each has a header, so the bytes bound how many there are.
        let mut ip = ip;
        while let Some((_, next)) = tunnel::read(&ip, payload) {
            self.further_tunnels = self.further_tunnels.saturating_add(1);
            let (_, network) = link::read(next);
            let Some(read) = Ip::read(network) else { return };
            (ip, payload) = read;
        }
    }
}
