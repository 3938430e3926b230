//! The structures of flow samples and dropped packets: facts about one packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::list::{AsPath, List};
use super::structure::{Kind, records, structures};
use super::xdr::{Cursor, Xdr};
use super::{Address, DataFormat, Fault, Mac, Packet, RawRecord, Text, Value};
use crate::bytes::count;

structures! {
    /// The first bytes of a packet. [`Packet`] reads them.
    SampledHeader<'a> {
        /// What they begin with: 1 Ethernet, 11 IPv4, 12 IPv6, 13 MPLS; see [`Packet::parse`].
        protocol: u32,
        /// Length of the packet on the wire; of Ethernet, with its check sequence.
        frame_length_bytes: u32,
        /// What the agent took off before it sampled. Not to be relied on: agents are seen that say how much of the packet is
        /// not in `header`.
        stripped_bytes: u32,
        /// The bytes, without XDR's padding.
        header: &'a [u8],
    }

    /// The Ethernet header of a packet.
    Ethernet {
        /// Length of the frame, without the bytes of encodings below Ethernet.
        length_bytes: u32,
        src: Mac,
        dst: Mac,
        ethertype: u32,
    }

    /// The IPv4 header of a packet, with the ports behind it.
    Ipv4 {
        /// Total length of the packet.
        length_bytes: u32,
        protocol: u32,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        src_port: u32,
        dst_port: u32,
        tcp_flags: u32,
        tos: u32,
    }

    /// The IPv6 header of a packet, with the ports behind it.
    Ipv6 {
        /// Length of the packet without the fixed header and those below it.
        length_bytes: u32,
        next_header: u32,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        src_port: u32,
        dst_port: u32,
        tcp_flags: u32,
        priority: u32,
    }

    /// What a switch knows of a packet. All ones is not known.
    Switch {
        src_vlan: u32,
        src_priority: u32,
        dst_vlan: u32,
        dst_priority: u32,
    }

    /// What a router knows of a packet.
    Router {
        /// The router that the packet goes to next.
        next_hop: Address,
        src_mask_bits: u32,
        dst_mask_bits: u32,
    }

    /// What a router with BGP knows of a packet.
    Gateway<'a> {
        /// The router at the border to which the packet goes.
        next_hop: Address,
        /// The router's own system.
        router_as: u32,
        src_as: u32,
        src_peer_as: u32,
        /// The way to the destination, see [`Gateway::dst_as`].
        dst_as_path: AsPath<'a>,
        communities: List<'a, u32>,
        local_pref: u32,
    }

    /// Users at both ends.
    User<'a> {
        /// MIBenum of the character set of `src_user`.
        src_charset: u32,
        src_user: Text<'a>,
        dst_charset: u32,
        dst_user: Text<'a>,
    }

    /// What a web request asks for.
    Url<'a> {
        /// 1 the source is the server, 2 the destination is.
        direction: u32,
        url: Text<'a>,
        host: Text<'a>,
    }

    /// MPLS labels of a packet on its way in and out, the outermost first.
    Mpls<'a> {
        next_hop: Address,
        in_stack: List<'a, u32>,
        out_stack: List<'a, u32>,
    }

    /// Addresses behind address translation.
    Nat {
        src: Address,
        dst: Address,
    }

    /// An MPLS tunnel or virtual circuit.
    MplsName<'a> {
        name: Text<'a>,
        id: u32,
        class_of_service: u32,
    }

    /// The class of packets that an MPLS label stands for.
    MplsFtn<'a> {
        description: Text<'a>,
        mask: u32,
    }

    /// The prefix that an MPLS label stands for.
    MplsLdpFec {
        prefix_length_bits: u32,
    }

    /// VLAN tags, the outermost first: TPID in the upper half of each, TCI in the lower.
    VlanStack<'a> {
        stack: List<'a, u32>,
    }

    /// Data of an 802.11 frame, decrypted.
    WifiPayload<'a> {
        cipher_suite: u32,
        data: &'a [u8],
    }

    /// How an 802.11 frame was received.
    WifiRx<'a> {
        ssid: Text<'a>,
        bssid: Mac,
        version: u32,
        channel: u32,
        speed_bits_per_sec: u64,
        rsni: u32,
        rcpi: u32,
        duration_us: u32,
    }

    /// How an 802.11 frame was sent.
    WifiTx<'a> {
        ssid: Text<'a>,
        bssid: Mac,
        version: u32,
        transmissions: u32,
        packet_duration_us: u32,
        retrans_duration_us: u32,
        channel: u32,
        speed_bits_per_sec: u64,
        power_mw: u32,
    }

    /// Where in the sampled header the inner packet begins.
    InnerHeaderOffset {
        offset_bytes: u32,
    }

    /// A virtual network.
    Vni {
        vni: u32,
    }

    /// Ports behind address translation.
    NatPort {
        src_port: u32,
        dst_port: u32,
    }

    /// The queue that a packet left by.
    EgressQueue {
        queue: u32,
    }

    /// The access list that decided on a packet.
    Acl<'a> {
        number: u32,
        name: Text<'a>,
        /// 0 not known, 1 in, 2 out.
        direction: u32,
    }

    /// The function of the software that dropped a packet.
    Function<'a> {
        symbol: Text<'a>,
    }

    /// How long a packet was in the switch. All ones is that or longer.
    TransitDelay {
        delay_ns: u32,
    }

    /// What was in the queue before a packet.
    QueueDepth {
        depth_bytes: u32,
    }

    /// The trap of the hardware that dropped a packet.
    HwTrap<'a> {
        group: Text<'a>,
        trap: Text<'a>,
    }

    /// Why Linux dropped a packet.
    LinuxDropReason<'a> {
        reason: Text<'a>,
    }

    /// When a packet was sampled.
    Timestamp {
        /// Since 1970, UTC.
        unix_ns: u64,
    }

    /// An IPv4 socket of the host that was sampled.
    SocketIpv4 {
        protocol: u32,
        local: Ipv4Addr,
        remote: Ipv4Addr,
        local_port: u32,
        remote_port: u32,
    }

    /// An IPv6 socket of the host that was sampled.
    SocketIpv6 {
        protocol: u32,
        local: Ipv6Addr,
        remote: Ipv6Addr,
        local_port: u32,
        remote_port: u32,
    }

    /// A web request.
    HttpRequest<'a> {
        /// 0 other, 1 OPTIONS, 2 GET, 3 HEAD, 4 POST, 5 PUT, 6 DELETE, 7 TRACE, 8 CONNECT.
        method: u32,
        /// 1001 is HTTP/1.1.
        version: u32,
        uri: Text<'a>,
        host: Text<'a>,
        referer: Text<'a>,
        user_agent: Text<'a>,
        forwarded_for: Text<'a>,
        auth_user: Text<'a>,
        mime_type: Text<'a>,
        request_bytes: u64,
        response_bytes: u64,
        duration_us: u32,
        status: i32,
    }

    /// The state of the TCP connection of a packet, at the host that sampled it.
    TcpInfo {
        /// 0 not known, 1 received, 2 sent.
        direction: u32,
        snd_mss_bytes: u32,
        rcv_mss_bytes: u32,
        unacked_segments: u32,
        lost_segments: u32,
        retrans_segments: u32,
        pmtu_bytes: u32,
        rtt_us: u32,
        rttvar_us: u32,
        snd_cwnd_segments: u32,
        reordering_segments: u32,
        min_rtt_us: u32,
    }

    /// The data sources at both ends of a packet.
    Entities {
        src_class: u32,
        src_index: u32,
        dst_class: u32,
        dst_index: u32,
    }
}

records! {
    /// What is known of one packet.
    FlowRecord;
    0:1 "sampled_header" SampledHeader(SampledHeader<'a>) "The first bytes of the packet.";
    0:2 "sampled_ethernet" SampledEthernet(Ethernet) "The Ethernet header.";
    0:3 "sampled_ipv4" SampledIpv4(Ipv4) "The IPv4 header.";
    0:4 "sampled_ipv6" SampledIpv6(Ipv6) "The IPv6 header.";
    0:1001 "extended_switch" ExtendedSwitch(Switch) "VLANs and priorities.";
    0:1002 "extended_router" ExtendedRouter(Router) "Next hop and masks.";
    0:1003 "extended_gateway" ExtendedGateway(Gateway<'a>) "Autonomous systems, by BGP.";
    0:1004 "extended_user" ExtendedUser(User<'a>) "Users at both ends.";
    0:1005 "extended_url" ExtendedUrl(Url<'a>) "What a web request asks for.";
    0:1006 "extended_mpls" ExtendedMpls(Mpls<'a>) "MPLS labels.";
    0:1007 "extended_nat" ExtendedNat(Nat) "Addresses behind address translation.";
    0:1008 "extended_mpls_tunnel" ExtendedMplsTunnel(MplsName<'a>) "An MPLS tunnel.";
    0:1009 "extended_mpls_vc" ExtendedMplsVc(MplsName<'a>) "An MPLS virtual circuit.";
    0:1010 "extended_mpls_ftn" ExtendedMplsFtn(MplsFtn<'a>) "The class of packets that an MPLS label stands for.";
    0:1011 "extended_mpls_ldp_fec" ExtendedMplsLdpFec(MplsLdpFec) "The prefix that an MPLS label stands for.";
    0:1012 "extended_vlan_tunnel" ExtendedVlanTunnel(VlanStack<'a>) "VLAN tags that the switch took off or did not look at.";
    0:1013 "extended_80211_payload" Extended80211Payload(WifiPayload<'a>) "Data of an 802.11 frame, decrypted.";
    0:1014 "extended_80211_rx" Extended80211Rx(WifiRx<'a>) "How an 802.11 frame was received.";
    0:1015 "extended_80211_tx" Extended80211Tx(WifiTx<'a>) "How an 802.11 frame was sent.";
    0:1020 "extended_nat_port" ExtendedNatPort(NatPort) "Ports behind address translation.";
    0:1021 "extended_L2_tunnel_egress" ExtendedL2TunnelEgress(Ethernet) "The Ethernet header of the tunnel that the packet leaves in.";
    0:1022 "extended_L2_tunnel_ingress" ExtendedL2TunnelIngress(Ethernet) "The Ethernet header of the tunnel that the packet came in.";
    0:1023 "extended_ipv4_tunnel_egress" ExtendedIpv4TunnelEgress(Ipv4) "The IPv4 header of the tunnel that the packet leaves in.";
    0:1024 "extended_ipv4_tunnel_ingress" ExtendedIpv4TunnelIngress(Ipv4) "The IPv4 header of the tunnel that the packet came in.";
    0:1025 "extended_ipv6_tunnel_egress" ExtendedIpv6TunnelEgress(Ipv6) "The IPv6 header of the tunnel that the packet leaves in.";
    0:1026 "extended_ipv6_tunnel_ingress" ExtendedIpv6TunnelIngress(Ipv6) "The IPv6 header of the tunnel that the packet came in.";
    0:1027 "extended_decapsulate_egress" ExtendedDecapsulateEgress(InnerHeaderOffset) "The switch takes a tunnel's header off.";
    0:1028 "extended_decapsulate_ingress" ExtendedDecapsulateIngress(InnerHeaderOffset) "The switch took a tunnel's header off.";
    0:1029 "extended_vni_egress" ExtendedVniEgress(Vni) "The virtual network that the packet leaves to.";
    0:1030 "extended_vni_ingress" ExtendedVniIngress(Vni) "The virtual network that the packet came from.";
    0:1034 "extended_vlanin" ExtendedVlanIn(VlanStack<'a>) "VLAN tags on the way in.";
    0:1035 "extended_vlanout" ExtendedVlanOut(VlanStack<'a>) "VLAN tags on the way out.";
    0:1036 "extended_egress_queue" ExtendedEgressQueue(EgressQueue) "The queue that the packet left by.";
    0:1037 "extended_acl" ExtendedAcl(Acl<'a>) "The access list that decided on the packet.";
    0:1038 "extended_function" ExtendedFunction(Function<'a>) "The function that dropped the packet.";
    0:1039 "extended_transit_delay" ExtendedTransitDelay(TransitDelay) "How long the packet was in the switch.";
    0:1040 "extended_queue_depth" ExtendedQueueDepth(QueueDepth) "What was in the queue before the packet.";
    0:1041 "extended_hw_trap" ExtendedHwTrap(HwTrap<'a>) "The trap of the hardware that dropped the packet.";
    0:1042 "extended_linux_drop_reason" ExtendedLinuxDropReason(LinuxDropReason<'a>) "Why Linux dropped the packet.";
    0:1043 "extended_timestamp" ExtendedTimestamp(Timestamp) "When the packet was sampled.";
    0:2100 "extended_socket_ipv4" ExtendedSocketIpv4(SocketIpv4) "The IPv4 socket of the host.";
    0:2101 "extended_socket_ipv6" ExtendedSocketIpv6(SocketIpv6) "The IPv6 socket of the host.";
    0:2102 "extended_proxy_socket_ipv4" ExtendedProxySocketIpv4(SocketIpv4) "The IPv4 socket on a proxy's other side.";
    0:2103 "extended_proxy_socket_ipv6" ExtendedProxySocketIpv6(SocketIpv6) "The IPv6 socket on a proxy's other side.";
    0:2206 "http_request" HttpRequest(HttpRequest<'a>) "A web request.";
    0:2209 "extended_tcp_info" ExtendedTcpInfo(TcpInfo) "The state of the packet's TCP connection.";
    0:2210 "extended_entities" ExtendedEntities(Entities) "The data sources at both ends.";
}

impl<'a> FlowRecord<'a> {
    /// A structure as some agents encode it, where it is not as it should be.
    #[cold]
    fn of_vendor(record: &RawRecord<'a>) -> Option<Self> {
        // Huawei does not pad Ethernet addresses.
        let (length, macs_and_type) = record.body.split_first_chunk()?;
        let macs_and_type: &[u8; 16] = macs_and_type.try_into().ok()?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, ethertype @ ..] = *macs_and_type;
        let frame = Ethernet {
            length_bytes: u32::from_be_bytes(*length),
            src: Mac([a, b, c, d, e, f]),
            dst: Mac([g, h, i, j, k, l]),
            ethertype: u32::from_be_bytes(ethertype),
        };
        match (record.format.enterprise(), record.format.format()) {
            (0, 2) => Some(Self::SampledEthernet(frame)),
            (0, 1021) => Some(Self::ExtendedL2TunnelEgress(frame)),
            (0, 1022) => Some(Self::ExtendedL2TunnelIngress(frame)),
            _ => None,
        }
    }
}

impl Gateway<'_> {
    /// The autonomous system that announces the destination; `None` if it is the router's own.
    #[must_use]
    pub fn dst_as(&self) -> Option<u32> {
        self.dst_as_path.systems().last()
    }

    /// The next autonomous system on the path; `None` if the destination is in the router's own.
    #[must_use]
    pub fn dst_peer_as(&self) -> Option<u32> {
        self.dst_as_path.systems().next()
    }
}

impl SampledHeader<'_> {
    /// Parses the bytes.
    #[must_use]
    #[inline]
    pub fn packet(&self) -> Packet {
        Packet::parse(self.protocol, self.header)
    }

    /// Parses the bytes into an existing `packet`.
    #[inline]
    pub fn read_packet(&self, packet: &mut Packet) {
        packet.read(self.protocol, self.header);
    }

    /// Length of the packet starting at its network header, in bytes: IP's own length, or else the rest of the frame.
    #[must_use]
    pub fn l3_bytes(&self, packet: &Packet) -> u32 {
        let said = packet.ip.map_or(0, |ip| ip.length_bytes);
        if said > 0 {
            return said;
        }

        self.frame_length_bytes
            .saturating_sub(packet.link_bytes.into())
            .saturating_sub(self.plausible_stripped_bytes())
    }

    /// Bytes of the frame that are not part of the packet: its check sequence, and tags removed by the agent.
    fn plausible_stripped_bytes(&self) -> u32 {
        const CHECK_SEQUENCE_BYTES: u32 = 4;
        const WITH_A_TAG_BYTES: u32 = 8;
        // Some agents report everything beyond the sampled bytes as stripped.
        let behind = self.frame_length_bytes.saturating_sub(count(self.header.len()));
        let is_nonsense = self.stripped_bytes == behind && behind > WITH_A_TAG_BYTES;
        if is_nonsense { CHECK_SEQUENCE_BYTES } else { self.stripped_bytes }
    }
}
