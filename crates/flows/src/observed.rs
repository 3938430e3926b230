//! What one sample says about its frame, collected from its records.

use crate::field::{Facts, Field, Value};
use std::net::IpAddr;
use wire::sflow::{DataSource, DroppedPacket, FlowRecord, FlowSample, Interface, Ip, Packet};

/// The content of one sample.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Length of the frame on the wire in bytes, according to the agent. For agents that send no frame, that of the packet.
    pub frame_bytes: u32,
    agent: IpAddr,
    sub_agent: u32,
    source: DataSource,
    input: Interface,
    output: Interface,
    drop_reason: Option<u32>,
    packet: Packet,
    /// From records that describe a packet without its header.
    described: Option<Ip>,
    described_ethertype: Option<u32>,
    next_hop: Option<IpAddr>,
    src_as: Option<u32>,
    dst_as: Option<u32>,
    peer_as: Option<u32>,
    vlan: Option<u32>,
    vni: Option<u32>,
    transit_delay_ns: Option<u32>,
    queue_depth: Option<u32>,
    queue: Option<u32>,
}

impl Observed {
    /// The content of a flow sample before its records.
    #[inline]
    pub fn of_flow(agent: IpAddr, sub_agent: u32, flow: &FlowSample<'_>) -> Observed {
        let drop_reason = match flow.output {
            Interface::Discarded(reason) => Some(reason.normal().0),
            _ => None,
        };
        Observed::new(agent, sub_agent, flow.source, flow.input, flow.output, drop_reason)
    }

    /// The content of a dropped packet before its records.
    pub fn of_dropped(agent: IpAddr, sub_agent: u32, dropped: &DroppedPacket<'_>) -> Observed {
        let interface =
            |index| if index == 0 { Interface::Unknown } else { Interface::Index(index) };
        let (input, output) = (dropped.input_if_index, dropped.output_if_index);
        let reason = Some(dropped.reason.normal().0);
        Observed::new(agent, sub_agent, dropped.source, interface(input), interface(output), reason)
    }

    #[inline]
    fn new(
        agent: IpAddr,
        sub_agent: u32,
        source: DataSource,
        input: Interface,
        output: Interface,
        drop_reason: Option<u32>,
    ) -> Observed {
        Observed {
            frame_bytes: 0,
            agent,
            sub_agent,
            source,
            input,
            output,
            drop_reason,
            packet: Packet::default(),
            described: None,
            described_ethertype: None,
            next_hop: None,
            src_as: None,
            dst_as: None,
            peer_as: None,
            vlan: None,
            vni: None,
            transit_delay_ns: None,
            queue_depth: None,
            queue: None,
        }
    }

    /// Adds the content of a record.
    #[inline]
    pub fn add(&mut self, record: &FlowRecord<'_>) {
        match record {
            FlowRecord::SampledHeader(header) => {
                header.read_packet(&mut self.packet);
                self.frame_bytes = header.frame_length_bytes;
            }
            FlowRecord::SampledEthernet(frame) => {
                self.described_ethertype = Some(frame.ethertype);
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
            FlowRecord::ExtendedSwitch(switch) => {
                // All ones mean unknown; 0 means none.
                self.vlan = Some(switch.src_vlan).filter(|vlan| (1..=4095).contains(vlan));
            }
            FlowRecord::ExtendedRouter(router) => self.next_hop = router.next_hop.ip(),
            FlowRecord::ExtendedGateway(gateway) => {
                self.next_hop = self.next_hop.or(gateway.next_hop.ip());
                self.src_as = Some(gateway.src_as);
                self.peer_as = Some(gateway.src_peer_as);
                self.dst_as = gateway.dst_as();
            }
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

    /// A length that counts if no sampled header has one.
    fn at_least(&mut self, bytes: u32) {
        self.frame_bytes = self.frame_bytes.max(bytes);
    }

    fn ip(&self) -> Option<&Ip> {
        self.packet.ip.as_ref().or(self.described.as_ref())
    }

    fn inner(&self) -> Option<&Ip> {
        self.packet.inner.as_ref()
    }
}

/// The index of an interface; absent if the end is not an interface.
fn index(interface: Interface) -> Value {
    Value::number(interface.if_index())
}

fn src_port(ip: Option<&Ip>) -> Value {
    Value::number(ip.and_then(|ip| ip.ports).map(|ports| ports.src))
}

fn dst_port(ip: Option<&Ip>) -> Value {
    Value::number(ip.and_then(|ip| ip.ports).map(|ports| ports.dst))
}

impl Facts for Observed {
    fn value(&self, field: Field) -> Value {
        let (packet, ip, inner) = (&self.packet, self.ip(), self.inner());
        match field {
            Field::Agent => Value::Address(self.agent),
            Field::SubAgent => Value::Number(self.sub_agent.into()),
            Field::Source => Value::Number(self.source.index.into()),
            Field::Input => index(self.input),
            Field::Output => index(self.output),
            Field::SrcMac => packet.macs.map_or(Value::Absent, |macs| Value::Mac(macs.src.0)),
            Field::DstMac => packet.macs.map_or(Value::Absent, |macs| Value::Mac(macs.dst.0)),
            Field::Ethertype => {
                Value::number(packet.ethertype.map(u32::from).or(self.described_ethertype))
            }
            Field::Vlan => Value::number(packet.vlan.map(|vlan| vlan.id().into()).or(self.vlan)),
            Field::InnerVlan => Value::number(packet.inner_vlan.map(|vlan| vlan.id())),
            Field::MplsLabel => Value::number(packet.mpls.labels().next()),
            Field::IpVersion => Value::number(ip.map(|ip| if ip.src.is_ipv4() { 4u8 } else { 6 })),
            Field::Src => Value::address(ip.map(|ip| ip.src)),
            Field::Dst => Value::address(ip.map(|ip| ip.dst)),
            Field::Protocol => Value::number(ip.map(|ip| ip.protocol)),
            Field::Dscp => Value::number(ip.map(Ip::dscp)),
            Field::Ttl => Value::number(packet.ip.map(|ip| ip.ttl)),
            Field::Fragment => Value::number(ip.map(|ip| u8::from(ip.fragment.is_some()))),
            Field::SrcPort => src_port(ip),
            Field::DstPort => dst_port(ip),
            Field::TcpFlags => Value::number(ip.and_then(|ip| ip.tcp_flags)),
            Field::IcmpType => Value::number(ip.and_then(|ip| ip.icmp).map(|icmp| icmp.kind)),
            Field::IcmpCode => Value::number(ip.and_then(|ip| ip.icmp).map(|icmp| icmp.code)),
            Field::FrameSize => Value::Number(self.frame_bytes.into()),
            Field::Vni => Value::number(packet.tunnel.and_then(|tunnel| tunnel.vni()).or(self.vni)),
            Field::InnerSrc => Value::address(inner.map(|ip| ip.src)),
            Field::InnerDst => Value::address(inner.map(|ip| ip.dst)),
            Field::InnerProtocol => Value::number(inner.map(|ip| ip.protocol)),
            Field::InnerSrcPort => src_port(inner),
            Field::InnerDstPort => dst_port(inner),
            Field::NextHop => Value::address(self.next_hop),
            Field::SrcAs => Value::number(self.src_as),
            Field::DstAs => Value::number(self.dst_as),
            Field::PeerAs => Value::number(self.peer_as),
            Field::DropReason => Value::number(self.drop_reason),
            Field::TransitDelay => Value::number(self.transit_delay_ns),
            Field::QueueDepth => Value::number(self.queue_depth),
            Field::Queue => Value::number(self.queue),
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
