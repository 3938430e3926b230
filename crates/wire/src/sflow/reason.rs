//! Why a packet was dropped.

use std::fmt;

/// Why a packet was dropped: a number from the specification "sFlow Dropped Packet Notification Structures", or from its
/// extension by implementations (`host-sflow`, 304 and above).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropReason(pub u32);

impl DropReason {
    /// The reason's name; `None` for a number without one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let number = self.normal().0;
        let (names, at) = if number < FIRST_OF_OTHERS {
            (UNREACHABLE, number)
        } else {
            (OTHERS, number - FIRST_OF_OTHERS)
        };
        names.get(usize::try_from(at).ok()?).copied()
    }

    /// The reason with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|(_, known)| *known == name).map(|(reason, _)| reason)
    }

    /// The standard number of the reason. `host-sflow` has two wrong numbers, from the header file that it shares with
    /// `sflowtool`: 33 means `dev_hdr` (332) and 36 means `tc_egress` (366).
    #[must_use]
    pub const fn normal(self) -> Self {
        match self.0 {
            33 => Self(332),
            36 => Self(366),
            number => Self(number),
        }
    }

    /// Every reason that has a name, by number.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        let numbered = |first: u32, names: &'static [&'static str]| {
            (first..).map(Self).zip(names.iter().copied())
        };
        numbered(0, UNREACHABLE).chain(numbered(FIRST_OF_OTHERS, OTHERS))
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// From 0: the codes of ICMP's "destination unreachable".
const UNREACHABLE: &[&str] = &[
    "net",
    "host",
    "protocol",
    "port",
    "frag_needed",
    "src_route_failed",
    "dst_net_unknown",
    "dst_host_unknown",
    "src_host_isolated",
    "dst_net_prohibited",
    "dst_host_prohibited",
    "dst_net_tos",
    "dst_host_tos",
    "comm_admin_prohibited",
    "host_precedence_violation",
    "precedence_cutoff",
];

const FIRST_OF_OTHERS: u32 = 256;

/// From [`FIRST_OF_OTHERS`].
const OTHERS: &[&str] = &[
    "unknown",
    "ttl_exceeded",
    "acl",
    "no_buffer_space",
    "red",
    "traffic_shaping",
    "pkt_too_big",
    "src_mac_is_multicast",
    "vlan_tag_mismatch",
    "ingress_vlan_filter",
    "ingress_spanning_tree_filter",
    "port_list_is_empty",
    "port_loopback_filter",
    "blackhole_route",
    "non_ip",
    "uc_dip_over_mc_dmac",
    "dip_is_loopback",
    "sip_is_mc",
    "sip_is_loopback",
    "ip_header_corrupted",
    "ipv4_sip_is_limited_bc",
    "ipv6_mc_dip_reserved_scope",
    "ipv6_mc_dip_interface_local_scope",
    "unresolved_neigh",
    "mc_reverse_path_forwarding",
    "non_routable_packet",
    "decap_error",
    "overlay_smac_is_mc",
    "unknown_l2",
    "unknown_l3",
    "unknown_l3_exception",
    "unknown_buffer",
    "unknown_tunnel",
    "unknown_l4",
    "sip_is_unspecified",
    "mlag_port_isolation",
    "blackhole_arp_neigh",
    "src_mac_is_dmac",
    "dmac_is_reserved",
    "sip_is_class_e",
    "mc_dmac_mismatch",
    "sip_is_dip",
    "dip_is_local_network",
    "dip_is_link_local",
    "overlay_smac_is_dmac",
    "egress_vlan_filter",
    "uc_reverse_path_forwarding",
    "split_horizon",
    "locked_port",
    "dmac_filter",
    "blackhole_nexthop",
    "vxlan_parsing",
    "llc_snap_parsing",
    "vlan_parsing",
    "pppoe_ppp_parsing",
    "mpls_parsing",
    "arp_parsing",
    "ip_1_parsing",
    "ip_n_parsing",
    "gre_parsing",
    "udp_parsing",
    "tcp_parsing",
    "ipsec_parsing",
    "sctp_parsing",
    "dccp_parsing",
    "gtp_parsing",
    "esp_parsing",
    "unknown_parsing",
    "pkt_too_small",
    "unhandled_proto",
    "ipv6disabled",
    "invalid_proto",
    "ip_noproto",
    "skb_csum",
    "skb_ucopy_fault",
    "dev_ready",
    "dev_hdr",
    "dup_frag",
    "skb_gso_seg",
    "reverse_path_forwarding",
    "icmp_parsing",
    "tcp_md5notfound",
    "tcp_md5unexpected",
    "tcp_md5failure",
    "tcp_flags",
    "tcp_zerowindow",
    "tcp_old_data",
    "tcp_overwindow",
    "tcp_ofomerge",
    "tcp_rfc7323_paws",
    "tcp_invalid_sequence",
    "tcp_reset",
    "tcp_invalid_syn",
    "tcp_close",
    "tcp_fastopen",
    "tcp_old_ack",
    "tcp_too_old_ack",
    "tcp_ack_unsent_data",
    "tcp_ofo_queue_prune",
    "tcp_ofo_drop",
    "tcp_minttl",
    "ipv6_bad_exthdr",
    "ipv6_ndisc_frag",
    "ipv6_ndisc_hop_limit",
    "ipv6_ndisc_bad_code",
    "ipv6_ndisc_bad_options",
    "ipv6_ndisc_ns_otherhost",
    "tap_filter",
    "tap_txfilter",
    "tc_ingress",
    "tc_egress",
    "xdp",
    "cpu_backlog",
    "bpf_cgroup_egress",
    "xfrm_policy",
    "socket_filter",
    "bgp_flowspec",
];
