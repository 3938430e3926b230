//! The sampled first bytes of a packet.

mod guess;
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
    /// The service of a backbone frame (PBB, IEEE 802.1ah).
    pub service: Option<u32>,
    /// Bytes before the network header: Ethernet, tags, labels.
    pub link_bytes: u16,
    /// The outermost IP header and the start of its payload.
    pub ip: Option<Ip>,
    /// The tunnel that carries another packet.
    pub tunnel: Option<Tunnel>,
    /// Ethernet addresses within the tunnel, or within a backbone frame.
    pub tunnel_macs: Option<MacPair>,
    /// The VLAN tag within the tunnel.
    pub tunnel_vlan: Option<Vlan>,
    /// Bytes before the network header within the tunnel. 0 if there is no tunnel.
    pub inner_bytes: u16,
    /// The IP header within the tunnel and the start of its payload.
    pub inner: Option<Ip>,
    /// Tunnels within the tunnel, which are only counted.
    pub further_tunnels: u8,
    /// Whether it is called Ethernet, but begins with an IP header. Nothing is read then.
    pub is_other_link: bool,
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
    /// IP, as nothing else can be there, but nothing says so.
    Bare(&'a [u8]),
}

/// What the layers below lead to.
#[derive(Clone, Copy)]
enum Network<'a> {
    /// An IP header of this version.
    Ip(u8, &'a [u8]),
    /// A pseudowire: an Ethernet frame.
    Frame(&'a [u8]),
    /// Something else.
    Other(&'a [u8]),
}

impl<'a> Network<'a> {
    const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Ip(_, bytes) | Self::Frame(bytes) | Self::Other(bytes) => bytes,
        }
    }
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
        self.read_outer(next, header);
    }

    #[inline]
    fn read_outer(&mut self, next: Next<'_>, header: &[u8]) {
        let network = link::read(next, self);
        self.link_bytes = before(header, network.bytes());
        match network {
            Network::Ip(version, bytes) => {
                let Some((ip, payload)) = Ip::read(version, bytes, &mut self.ip) else { return };
                if let Some((tunnel, next)) = tunnel::read(ip, payload) {
                    self.tunnel = Some(tunnel);
                    self.read_inner(next, header);
                }
            }
            Network::Frame(frame) => {
                self.tunnel = Some(Tunnel::Pseudowire);
                self.read_inner(Next::Ethernet(frame), header);
            }
            Network::Other(_) => {
                if matches!(next, Next::Ethernet(_)) && guess::is_packet(header) {
                    *self = Self { is_other_link: true, ..Self::default() };
                }
            }
        }
    }

    fn read_inner(&mut self, next: Next<'_>, header: &[u8]) {
        let mut inside = Self::default();
        let mut network = link::read(next, &mut inside);
        self.tunnel_macs = inside.macs;
        self.tunnel_vlan = inside.vlan;
        self.inner_bytes = before(header, network.bytes());

        // Each has a header, so the bytes limit their number.
        let mut place = Some(&mut self.inner);
        loop {
            let next = match network {
                Network::Ip(version, bytes) => {
                    let mut further = None;
                    let place = place.take().unwrap_or(&mut further);
                    let read = Ip::read(version, bytes, place);
                    let Some((_, next)) = read.and_then(|(ip, payload)| tunnel::read(ip, payload))
                    else {
                        return;
                    };
                    next
                }
                Network::Frame(frame) => Next::Ethernet(frame),
                Network::Other(_) => return,
            };
            place = None;
            self.further_tunnels = self.further_tunnels.saturating_add(1);
            network = link::read(next, &mut inside);
        }
    }
}

/// How many bytes of the header are before its end `rest`.
fn before(header: &[u8], rest: &[u8]) -> u16 {
    u16::try_from(header.len() - rest.len()).unwrap_or(u16::MAX)
}
