//! The table of flows: a row for the traffic of a flow since its previous row.
//!
//! Fields that other tables also have keep their numbers, as in `DatagramRecord`.

use crate::schema::schema;
use crate::{RecordKind, SCHEMA_VERSION};
use std::net::IpAddr;

schema! {
    /// What came of one flow between two moments. A field that is `None` is not known, or the definition does not have it.
    FlowRecord<'a> FlowIndex finish restore_ipv4

    identity "Which row this is, and of which host." {
        record_kind: RecordKind = 1, "", "", "What the row is about: `flow`.";
        time_unix_ns: fixed64 = 2, "ns", "", "When the row was made; since 1970, UTC.";
        sequence: u64 = 17, "", "",
            "Number of this row among the flow and counter rows of its run, from 0; a gap is a row that is missing. (`run_id`, `sequence`) \
             names a row: a store that has it twice has a copy.";
        host: text = 18, "", "", "The name of the host that made it, as on socket records.";
        tags: tags = 20, "", "", "Names and values from the configuration.";
        run_id: fixed64 = 21, "", "", "Random number of this run, above 0 and below 2^63.";
        host_id: text = 22, "", "", "Which host made it, as on socket records.";
        schema_version: u8 = 24, "", "", "Version of the tables, as on socket records.";
    }

    flow "Which flow, and what of it." {
        definition: text = 700, "", "", "The name of the `[[flow]]` that counts it.";
        cause: FlowCause = 701, "", "", "Why the row was made now.";
        begin_unix_ns: fixed64 = 702, "ns", "", "When the first sample that the row covers arrived; since 1970, UTC.";
        end_unix_ns: fixed64 = 703, "ns", "", "When the last one did.";
        key: tags = 704, "", "",
            "The parts of the key as the definition writes them (`src/24`, `group(dst)`, …), each with its value as text. Empty for a \
             definition without keys, and for a `merged` row.";
        merged_flows: u64 = 705, "flows", "",
            "How many flows the row stands for, where it has no key because there were more of them than rows may be made.";
        traffic: FlowTraffic = 706, "", "", "Which frames: those that passed, or those that were dropped.";
        sampler: u32 = 707, "", "",
            "A number of where the frames were seen, entering or leaving one agent, the same in all rows of a run, where the aggregation is `max`: \
             then a flow has rows for each such place on its way, and the one with the largest sum is the one to take.";
    }

    figures "How much it was. Scaled by what arrived, so that loss on the way takes nothing away; what the flow's other rows have is not \
             in here, so that rows add up to the flow." {
        samples: u64 = 710, "samples", "", "Samples that arrived.";
        bytes: u64 = 711, "bytes", "", "Bytes on the wire, as estimated from the samples.";
        bytes_low: u64 = 712, "bytes", "", "The lower end of the 95 % interval of `bytes`.";
        bytes_high: u64 = 713, "bytes", "", "Its upper end.";
        frames: u64 = 714, "frames", "", "Frames, as estimated from the samples.";
        frames_low: u64 = 715, "frames", "", "The lower end of the 95 % interval of `frames`.";
        frames_high: u64 = 716, "frames", "", "Its upper end.";
        raw_bytes: u64 = 717, "bytes", "",
            "Bytes of the samples times the configured sampling rate, as other collectors have it: too low by what was lost.";
        raw_frames: u64 = 718, "frames", "", "Samples times the configured sampling rate, likewise.";
        rate_missing_max: u64 = 719, "per second", "",
            "By how much the flow's rate may have been higher at `end_unix_ns` than what was counted of it, because its place had another \
             flow before: in the definition's unit. What came before is in no row of this flow.";
    }

    frame "The parts of the key that are a field as it is, typed. A field that is no part of the key is absent." {
        src_address: address = 5, "", "", "The source address, or that of its network.";
        src_port: u16 = 6, "", "", "The source port.";
        dst_address: address = 7, "", "", "The destination address, or that of its network.";
        dst_port: u16 = 8, "", "", "The destination port.";
        protocol: u8 = 50, "", "", "The IP protocol: 6 is TCP, 17 UDP.";
        agent_address: address = 730, "", "", "The agent's address, as its datagrams say.";
        sub_agent: u32 = 731, "", "", "The part of the agent that took the samples.";
        data_source: u32 = 732, "", "", "The index of the data source that was sampled.";
        input_interface: u32 = 733, "", "", "The index of the interface by which the frames came in.";
        output_interface: u32 = 734, "", "", "The index of the interface by which they left.";
        src_mac: text = 735, "", "", "The Ethernet source.";
        dst_mac: text = 736, "", "", "The Ethernet destination.";
        ethertype: u16 = 737, "", "", "The type of what the Ethernet frame carries.";
        vlan: u16 = 738, "", "", "The outermost VLAN.";
        inner_vlan: u16 = 739, "", "", "The second VLAN.";
        mpls_label: u32 = 740, "", "", "The outermost MPLS label.";
        ip_version: u8 = 741, "", "", "4 or 6.";
        src_prefix_bits: u8 = 742, "bits", "", "The length of the network that `src_address` is, where the key has networks.";
        dst_prefix_bits: u8 = 743, "bits", "", "The length of the network that `dst_address` is, where the key has networks.";
        src_group: text = 744, "", "", "The group of networks that the source is in.";
        dst_group: text = 745, "", "", "The group of networks that the destination is in.";
        dscp: u8 = 746, "", "", "The traffic class, without its two bits of congestion.";
        ttl: u8 = 747, "", "", "Time to live, or hop limit.";
        fragment: bool = 748, "", "", "Whether the packets are fragments.";
        tcp_flags: u16 = 749, "flags", "", "TCP's flags: 1 fin, 2 syn, 4 rst, 8 psh, 16 ack, 32 urg.";
        icmp_type: u8 = 750, "", "", "The type of ICMP messages.";
        icmp_code: u8 = 751, "", "", "Their code.";
        frame_size_bytes: u32 = 752, "bytes", "", "The frames' size on the wire.";
        vni: u32 = 753, "", "", "The virtual network of VXLAN or Geneve, or the key of GRE.";
        inner_src_address: address = 754, "", "", "The source address inside a tunnel.";
        inner_dst_address: address = 755, "", "", "The destination address inside a tunnel.";
        inner_protocol: u8 = 756, "", "", "The IP protocol inside a tunnel.";
        inner_src_port: u16 = 757, "", "", "The source port inside a tunnel.";
        inner_dst_port: u16 = 758, "", "", "The destination port inside a tunnel.";
        next_hop: address = 759, "", "", "The address of the next router.";
        src_as: u32 = 760, "", "", "The autonomous system of the source, as the agent knows it.";
        dst_as: u32 = 761, "", "", "The autonomous system of the destination.";
        peer_as: u32 = 762, "", "", "The autonomous system that handed the packets over.";
        drop_reason: u32 = 763, "", "", "Why the frames were dropped; only of frames that were.";
        transit_delay_ns: u32 = 764, "ns", "", "How long the frames were inside the switch.";
        queue_depth_bytes: u32 = 765, "bytes", "", "Bytes in their queue when they left.";
        queue: u32 = 766, "", "", "The queue by which they left.";
    }
}

impl FlowRecord<'_> {
    /// A row with only kind and version set.
    pub fn new() -> Self {
        FlowRecord {
            record_kind: Some(RecordKind::FLOW),
            schema_version: Some(SCHEMA_VERSION),
            ..FlowRecord::default()
        }
    }
}

/// On the wire all addresses have 16 bytes. Addresses from sampled frames are those of the packet: an IPv4-mapped IPv6 address
/// cannot be distinguished from an IPv4 one.
fn restore_ipv4(flow: &mut FlowRecord<'_>) {
    let addresses = [
        &mut flow.src_address,
        &mut flow.dst_address,
        &mut flow.agent_address,
        &mut flow.inner_src_address,
        &mut flow.inner_dst_address,
        &mut flow.next_hop,
    ];
    for address in addresses {
        *address = address.map(|address: IpAddr| address.to_canonical());
    }
}
