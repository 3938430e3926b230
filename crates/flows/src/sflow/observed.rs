//! What one sample says about its frame, collected from its records.

use crate::engine::Content;
use crate::field::{Facts, Field, Value, Word};
use crate::source::Length;
use std::net::IpAddr;
use wire::sflow::flow::{Ethernet, Gateway, Switch};
use wire::sflow::{
    DataSource, DroppedPacket, FlowRecord, FlowSample, Interface, Ip, Mac, MacPair, Packet, Ports,
};

/// The content of one sample.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Length of the frame on the wire in bytes: what the agent states, until the engine has compared it with the
    /// packet. For agents that send no frame, that of the packet.
    pub frame_bytes: u32,
    agent: IpAddr,
    sub_agent: u32,
    source: DataSource,
    input: Interface,
    output: Interface,
    drop_reason: Option<u32>,
    /// Bytes of the sampled header. 0 if there is none.
    sampled_bytes: u32,
    packet: Packet,
    /// From records that describe a packet without its header.
    described: Option<Ip>,
    described_frame: Option<Ethernet>,
    next_hop: Option<IpAddr>,
    gateway: Option<Gateway<'a>>,
    switch: Option<Switch>,
    vni: Option<u32>,
    transit_delay_ns: Option<u32>,
    queue_depth: Option<u32>,
    queue: Option<u32>,
}

/// The check sequence of Ethernet, which is part of a frame's length.
const CHECK_SEQUENCE_BYTES: u32 = 4;

impl<'a> Observed<'a> {
    /// The content of a flow sample before its records.
    #[inline]
    pub fn of_flow(agent: IpAddr, sub_agent: u32, flow: &FlowSample<'_>) -> Observed<'a> {
        let drop_reason = match flow.output {
            Interface::Discarded(reason) => Some(reason.normal().0),
            _ => None,
        };
        Observed::new(agent, sub_agent, flow.source, flow.input, flow.output, drop_reason)
    }

    /// The content of a dropped packet before its records.
    pub fn of_dropped(agent: IpAddr, sub_agent: u32, dropped: &DroppedPacket<'_>) -> Observed<'a> {
        let (input, output) = (dropped.input(), dropped.output());
        let reason = Some(dropped.reason.normal().0);
        Observed::new(agent, sub_agent, dropped.source, input, output, reason)
    }

    #[inline]
    fn new(
        agent: IpAddr,
        sub_agent: u32,
        source: DataSource,
        input: Interface,
        output: Interface,
        drop_reason: Option<u32>,
    ) -> Observed<'a> {
        Observed {
            frame_bytes: 0,
            agent,
            sub_agent,
            source,
            input,
            output,
            drop_reason,
            sampled_bytes: 0,
            packet: Packet::default(),
            described: None,
            described_frame: None,
            next_hop: None,
            gateway: None,
            switch: None,
            vni: None,
            transit_delay_ns: None,
            queue_depth: None,
            queue: None,
        }
    }

    /// Adds the content of a record.
    #[inline]
    pub fn add(&mut self, record: &FlowRecord<'a>) {
        match record {
            FlowRecord::SampledHeader(header) => {
                header.read_packet(&mut self.packet);
                self.sampled_bytes = u32::try_from(header.header.len()).unwrap_or(u32::MAX);
                self.at_least(header.frame_length_bytes);
            }
            FlowRecord::SampledEthernet(frame) => {
                self.described_frame = Some(*frame);
                self.at_least(frame.length_bytes);
            }
            FlowRecord::SampledIpv4(packet) => {
                self.described = Some(described::v4(packet));
                self.at_least(packet.length_bytes);
            }
            FlowRecord::SampledIpv6(packet) => {
                self.described = Some(described::v6(packet));
                self.at_least(packet.length_bytes);
            }
            FlowRecord::ExtendedSwitch(switch) => self.switch = Some(*switch),
            FlowRecord::ExtendedRouter(router) => self.next_hop = router.next_hop.ip(),
            FlowRecord::ExtendedGateway(gateway) => self.gateway = Some(*gateway),
            FlowRecord::ExtendedVniIngress(vni) => self.vni = Some(vni.vni),
            FlowRecord::ExtendedVniEgress(vni) => self.vni = self.vni.or(Some(vni.vni)),
            FlowRecord::ExtendedTransitDelay(delay) => {
                self.transit_delay_ns = Some(delay.delay_ns);
            }
            FlowRecord::ExtendedQueueDepth(queue) => self.queue_depth = Some(queue.depth_bytes),
            FlowRecord::ExtendedEgressQueue(queue) => self.queue = Some(queue.queue),
            _ => {}
        }
    }

    /// A length that counts if none is longer.
    fn at_least(&mut self, bytes: u32) {
        self.frame_bytes = self.frame_bytes.max(bytes);
    }

    fn ip(&self) -> Option<&Ip> {
        self.packet.ip.as_ref().or(self.described.as_ref())
    }

    fn inner(&self) -> Option<&Ip> {
        self.packet.inner.as_ref()
    }

    /// The VLAN of the frame's tag, or that in which the switch put it. A tag with VLAN 0 only has a priority (IEEE 802.1Q).
    fn vlan(&self) -> Value {
        let tag = self.packet.vlan.map(|vlan| vlan.id().into()).filter(|id| *id != 0);
        let switch = self.switch.map(|switch| switch.src_vlan);
        match tag.or(switch.filter(is_vlan)) {
            Some(id) => Value::number(Some(id)),
            None if self.packet.macs.is_some() || switch == Some(0) => Value::Word(Word::None),
            None => Value::Absent,
        }
    }

    fn out_vlan(&self) -> Value {
        match self.switch.map(|switch| switch.dst_vlan) {
            Some(0) => Value::Word(Word::None),
            vlan => Value::number(vlan.filter(is_vlan)),
        }
    }

    /// A system that a gateway says, in which 0 and an empty path are its own.
    fn system(&self, of: impl FnOnce(&Gateway<'_>) -> Option<u32>) -> Value {
        Value::number(
            self.gateway.as_ref().map(|gateway| {
                of(gateway).filter(|system| *system != 0).unwrap_or(gateway.router_as)
            }),
        )
    }

    fn mac(&self, of: fn(MacPair) -> Mac, described: fn(&Ethernet) -> Mac) -> Value {
        let mac = self.packet.macs.map(of).or(self.described_frame.as_ref().map(described));
        mac.map_or(Value::Absent, |mac| Value::Mac(mac.0))
    }
}

/// More than this behind the sampled bytes is more than a check sequence and a tag that was taken off.
const WITH_A_TAG_BYTES: u32 = 8;

/// All ones mean unknown; 0 means none.
fn is_vlan(vlan: &u32) -> bool {
    (1..=4095).contains(vlan)
}

/// An end of a frame's way through the agent.
fn interface(interface: Interface) -> Value {
    match interface {
        Interface::Index(index) => Value::Number(index.into()),
        Interface::Internal => Value::Word(Word::Internal),
        Interface::Multiple(_) => Value::Word(Word::Several),
        Interface::Discarded(_) => Value::Word(Word::Discarded),
        Interface::Unknown | Interface::Other { .. } => Value::Word(Word::Unknown),
    }
}

/// A port. Packets without one are known to have none.
fn port(ip: Option<&Ip>, of: fn(Ports) -> u16) -> Value {
    ip.map_or(Value::Absent, |ip| Value::number_or_none(ip.ports.map(of)))
}

impl Content for Observed<'_> {
    #[inline]
    fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    #[inline]
    fn set_frame_bytes(&mut self, bytes: u32) {
        self.frame_bytes = bytes;
    }

    #[inline]
    fn measure(&self) -> Length {
        let (ip, link_bytes) = match (&self.packet.ip, &self.packet.inner) {
            (Some(ip), _) => (ip, self.packet.link_bytes),
            (None, Some(ip)) => (ip, self.packet.inner_bytes),
            (None, None) => return Length::Plausible,
        };
        // The sender may have left the length to its network card: then it is 0.
        let packet_bytes = u32::from(link_bytes).saturating_add(ip.length_bytes);
        if ip.length_bytes > 0 && self.frame_bytes < packet_bytes {
            return Length::Short { frame_bytes: packet_bytes + CHECK_SEQUENCE_BYTES };
        }
        let is_more = self.frame_bytes > self.sampled_bytes.saturating_add(WITH_A_TAG_BYTES);
        if is_more { Length::Stated } else { Length::Plausible }
    }

    fn is_other_link(&self) -> bool {
        self.packet.is_other_link
    }
}

impl Facts for Observed<'_> {
    fn value(&self, field: Field) -> Value {
        let (packet, ip, inner) = (&self.packet, self.ip(), self.inner());
        let gateway = self.gateway.as_ref();
        match field {
            Field::Agent => Value::Address(self.agent),
            Field::SubAgent => Value::Number(self.sub_agent.into()),
            Field::Source => Value::Number(self.source.index.into()),
            Field::Input => interface(self.input),
            Field::Output => interface(self.output),
            Field::SrcMac => self.mac(|macs| macs.src, |frame| frame.src),
            Field::DstMac => self.mac(|macs| macs.dst, |frame| frame.dst),
            Field::Ethertype => {
                let described = self.described_frame.map(|frame| frame.ethertype);
                Value::number(packet.ethertype.map(u32::from).or(described))
            }
            Field::Vlan => self.vlan(),
            Field::OutVlan => self.out_vlan(),
            Field::InnerVlan => Value::number(packet.inner_vlan.map(|vlan| vlan.id())),
            Field::MplsLabel => Value::number(packet.mpls.labels().next()),
            Field::IpVersion => Value::number(ip.map(|ip| if ip.src.is_ipv4() { 4u8 } else { 6 })),
            Field::Src => Value::address(ip.map(|ip| ip.src)),
            Field::Dst => Value::address(ip.map(|ip| ip.dst)),
            Field::Protocol => Value::number(ip.map(|ip| ip.protocol)),
            Field::Dscp => Value::number(ip.map(Ip::dscp)),
            Field::Ttl => Value::number(packet.ip.map(|ip| ip.ttl)),
            Field::Fragment => Value::number(ip.map(|ip| u8::from(ip.fragment.is_some()))),
            Field::SrcPort => port(ip, |ports| ports.src),
            Field::DstPort => port(ip, |ports| ports.dst),
            Field::TcpFlags => Value::number(ip.and_then(|ip| ip.tcp_flags)),
            Field::IcmpType => Value::number(ip.and_then(|ip| ip.icmp).map(|icmp| icmp.kind)),
            Field::IcmpCode => Value::number(ip.and_then(|ip| ip.icmp).map(|icmp| icmp.code)),
            Field::FrameSize => Value::Number(self.frame_bytes.into()),
            Field::Vni => {
                let of_tunnel = packet.tunnel.and_then(|tunnel| tunnel.vni());
                Value::number(of_tunnel.or(packet.service).or(self.vni))
            }
            Field::InnerSrc => Value::address(inner.map(|ip| ip.src)),
            Field::InnerDst => Value::address(inner.map(|ip| ip.dst)),
            Field::InnerProtocol => Value::number(inner.map(|ip| ip.protocol)),
            Field::InnerSrcPort => port(inner, |ports| ports.src),
            Field::InnerDstPort => port(inner, |ports| ports.dst),
            Field::NextHop => {
                let of_gateway = gateway.and_then(|gateway| gateway.next_hop.ip());
                Value::address(self.next_hop.or(of_gateway))
            }
            Field::BgpNextHop => Value::address(gateway.and_then(|gateway| gateway.next_hop.ip())),
            Field::RouterAs => Value::number(gateway.map(|gateway| gateway.router_as)),
            Field::SrcAs => self.system(|gateway| Some(gateway.src_as)),
            Field::DstAs => self.system(|gateway| gateway.dst_as()),
            Field::PeerAs => self.system(|gateway| Some(gateway.src_peer_as)),
            Field::DstPeerAs => self.system(|gateway| gateway.dst_peer_as()),
            Field::Community => {
                Value::number(gateway.and_then(|gateway| gateway.communities.iter().next()))
            }
            Field::DropReason => Value::number(self.drop_reason),
            Field::TransitDelay => Value::number(self.transit_delay_ns),
            Field::QueueDepth => Value::number(self.queue_depth),
            Field::Queue => Value::number(self.queue),
        }
    }

    fn any(&self, field: Field, holds: impl Fn(Value) -> bool) -> bool {
        match (field, &self.gateway) {
            (Field::Community, Some(gateway)) => {
                gateway.communities.iter().any(|community| holds(Value::Number(community.into())))
            }
            _ => holds(self.value(field)),
        }
    }
}

/// Packets that a record describes instead of including their header.
mod described {
    use std::net::IpAddr;
    use wire::sflow::flow::{Ipv4, Ipv6};
    use wire::sflow::{Ip, Ports};

    const TCP: u32 = 6;

    pub(super) fn v4(packet: &Ipv4) -> Ip {
        let Ipv4 { length_bytes, protocol, src, dst, src_port, dst_port, tcp_flags, tos } = *packet;
        let ip = empty(src.into(), dst.into());
        let tcp_flags = (protocol == TCP).then_some(tcp_flags as u8);
        let (protocol, tos) = (protocol as u8, tos as u8);
        Ip { protocol, tos, length_bytes, tcp_flags, ports: ports(src_port, dst_port), ..ip }
    }

    pub(super) fn v6(packet: &Ipv6) -> Ip {
        let ip = empty(packet.src.into(), packet.dst.into());
        Ip {
            protocol: packet.next_header as u8,
            tos: packet.priority as u8,
            length_bytes: packet.length_bytes,
            tcp_flags: (packet.next_header == TCP).then_some(packet.tcp_flags as u8),
            ports: ports(packet.src_port, packet.dst_port),
            ..ip
        }
    }

    fn ports(src: u32, dst: u32) -> Option<Ports> {
        (src != 0 || dst != 0).then_some(Ports { src: src as u16, dst: dst as u16 })
    }

    fn empty(src: IpAddr, dst: IpAddr) -> Ip {
        Ip {
            src,
            dst,
            protocol: 0,
            ttl: 0,
            tos: 0,
            flow_label: 0,
            length_bytes: 0,
            fragment: None,
            ports: None,
            tcp_flags: None,
            icmp: None,
        }
    }
}
