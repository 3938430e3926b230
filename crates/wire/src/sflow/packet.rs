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
        let mut packet = Self::default();
        packet.fill(protocol, header);
        packet
    }

    /// The same in place of what this says: to be large and copied takes half as long as to be read.
    #[inline]
    pub fn read(&mut self, protocol: u32, header: &[u8]) {
        *self = Self::default();
        self.fill(protocol, header);
    }

    #[inline]
    fn fill(&mut self, protocol: u32, header: &[u8]) {
        let next = match protocol {
            ETHERNET => Next::Ethernet(header),
            PPP | POS => Next::Ppp(header),
            IPV4 => Next::Type(link::IPV4, header),
            IPV6 => Next::Type(link::IPV6, header),
            MPLS => Next::Type(link::MPLS, header),
            _ => return,
        };
        self.read_outer(next, header.len());
    }

    #[inline]
    fn read_outer(&mut self, next: Next<'_>, len: usize) {
        let network = link::read(next, self);
        self.link_bytes = u16::try_from(len - network.len()).unwrap_or(u16::MAX);

        let Some((ip, payload)) = Ip::read(network, &mut self.ip) else { return };
        if let Some((tunnel, next)) = tunnel::read(ip, payload) {
            self.tunnel = Some(tunnel);
            self.read_inner(next);
        }
    }

    fn read_inner(&mut self, next: Next<'_>) {
        let mut inside = Self::default();
        let network = link::read(next, &mut inside);
        self.tunnel_macs = inside.macs;
        self.tunnel_vlan = inside.vlan;
        let mut read = Ip::read(network, &mut self.inner);

        // Each has a header, so the bytes bound how many there are.
        while let Some((_, next)) = read.and_then(|(ip, payload)| tunnel::read(ip, payload)) {
            self.further_tunnels = self.further_tunnels.saturating_add(1);
            let network = link::read(next, &mut inside);
            read = Ip::read(network, &mut inside.ip);
        }
    }
}
