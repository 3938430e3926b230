//! The sampled first bytes of a packet.

mod ip;
mod link;
mod tunnel;

pub use ip::{Fragment, Icmp, Ip, Ports};
pub use link::{MacPair, MplsStack, Vlan};
pub use tunnel::Tunnel;

/// What the first bytes of a packet contain. Parts that they do not reach, or that are unknown here, are absent.
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
    /// The ethertype after the VLAN tags.
    pub ethertype: Option<u16>,
    /// Bytes before the network header: Ethernet, tags, labels.
    pub link_bytes: u16,
    /// The outermost IP header and the start of its payload.
    pub ip: Option<Ip>,
    /// The tunnel that carries another packet.
    pub tunnel: Option<Tunnel>,
    /// Ethernet addresses within the tunnel.
    pub tunnel_macs: Option<MacPair>,
    /// The VLAN tag within the tunnel.
    pub tunnel_vlan: Option<Vlan>,
    /// The IP header within the tunnel and the start of its payload.
    pub inner: Option<Ip>,
    /// Tunnels within the tunnel, which are only counted.
    pub further_tunnels: u8,
}

/// How a sampled header begins (`header_protocol`).
const ETHERNET: u32 = 1;
const PPP: u32 = 7;
const IPV4: u32 = 11;
const IPV6: u32 = 12;
const MPLS: u32 = 13;
const POS: u32 = 14;

/// The next protocol, and the bytes starting there.
#[derive(Clone, Copy)]
enum Next<'a> {
    Ethernet(&'a [u8]),
    /// By ethertype.
    Type(u16, &'a [u8]),
    Ppp(&'a [u8]),
}

impl Packet {
    /// Parses the header of a sample. `protocol` is the first protocol in the header, in sFlow's numbering: 1 Ethernet, 7 PPP,
    /// 11 IPv4, 12 IPv6, 13 MPLS, 14 POS; for others, nothing is parsed.
    #[must_use]
    #[inline]
    pub fn parse(protocol: u32, header: &[u8]) -> Self {
        let mut packet = Self::default();
        packet.fill(protocol, header);
        packet
    }

    /// The same, replacing the contents of this one: copying a value this large would take half as long as parsing it.
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

        // Each has a header, so the bytes limit their number.
        while let Some((_, next)) = read.and_then(|(ip, payload)| tunnel::read(ip, payload)) {
            self.further_tunnels = self.further_tunnels.saturating_add(1);
            let network = link::read(next, &mut inside);
            read = Ip::read(network, &mut inside.ip);
        }
    }
}
