//! The table of interface counters reported by sFlow agents, and of figures about the agents themselves.
//!
//! Fields that other tables also have keep their numbers, as in `DatagramRecord`.

use crate::schema::schema;
use crate::{CounterSubject, RecordKind, SCHEMA_VERSION};
use std::net::IpAddr;

schema! {
    /// The counters of one interface at one moment, or the figures of one agent. A field that is `None` is not known.
    CounterRecord<'a> CounterIndex finish restore_ipv4

    identity "Which row this is, and of which host." {
        record_kind: RecordKind = 1, "", "", "What the row is about: `counters`.";
        time_unix_ns: fixed64 = 2, "ns", "", "When the counters arrived, or when the agent's figures were read; since 1970, UTC.";
        sequence: u64 = 17, "", "",
            "Number of this row among the flow and counter rows of its run, from 0; a gap is a row that is missing. (`run_id`, `sequence`) \
             names a row: a store that has it twice has a copy.";
        host: text = 18, "", "", "The name of the host that received it, as on socket records.";
        tags: tags = 20, "", "", "Names and values from the configuration.";
        run_id: fixed64 = 21, "", "", "Random number of this run, above 0 and below 2^63.";
        host_id: text = 22, "", "", "Which host received it, as on socket records.";
        schema_version: u8 = 24, "", "", "Version of the tables, as on socket records.";
    }

    agent "Which agent, and how its datagrams and samples arrived. Figures are since the agent was first heard, and only in rows of kind \
           `agent`." {
        agent: address = 800, "", "", "The agent's address, as its datagrams say.";
        sub_agent: u32 = 801, "", "", "The part of the agent.";
        subject: CounterSubject = 802, "", "", "Whether the row is about an interface or about the agent itself.";
        uptime_ms: u32 = 803, "ms", "", "The agent's clock, since it started; wraps after 49.7 days.";
        datagrams_received: u64 = 810, "datagrams", "", "Its datagrams that arrived, each once.";
        datagrams_lost: u64 = 811, "datagrams", "", "Its datagrams that did not arrive, by their numbers.";
        datagrams_duplicate: u64 = 812, "datagrams", "", "Those that arrived again.";
        datagrams_reordered: u64 = 813, "datagrams", "", "Those that arrived after later ones; they are among the received.";
        restarts: u64 = 814, "", "", "How often its numbers began anew.";
        samples_received: u64 = 815, "samples", "", "Its flow samples that arrived, over all samplers.";
        samples_lost: u64 = 816, "samples", "", "Flow samples that did not arrive, by their numbers.";
        samples_agent_dropped: u64 = 817, "samples", "", "Flow samples that the agent says it dropped itself.";
        unattributed_frames: u64 = 818, "frames", "", "Frames that passed while nothing arrived: no flow has them.";
    }

    interface "Which interface, and its state." {
        if_index: u32 = 830, "", "", "The interface's index.";
        if_type: u32 = 831, "", "", "Its type, by IANA's `ifType`: 6 is Ethernet.";
        speed_bits_per_sec: u64 = 832, "bits/s", "", "Its speed; 0 if the agent does not say.";
        if_direction: u8 = 833, "", "", "1 full duplex, 2 half duplex, 3 in, 4 out, 0 not known.";
        is_admin_up: bool = 834, "", "", "Whether it is switched on.";
        is_oper_up: bool = 835, "", "", "Whether it works.";
        promiscuous_mode: u8 = 836, "", "", "1 promiscuous, 2 not, 0 not known.";
        missed_polls: u32 = 837, "", "", "Counter samples since the last row of the interface that did not arrive.";
        is_discontinuity: bool = 838, "", "",
            "Whether the counters cannot be compared with those of the row before: the first ones, a restart, or a leap that cannot be. \
             Then there are no differences and no rates.";
        interval_ms: u32 = 839, "ms", "", "Time since the counters before, by the agent's clock: what differences and rates are of.";
        sampled_ratio_permille: u32 = 840, "permille", "",
            "Bytes by samples for 1,000 bytes by counters: 1,000 is an agent that samples as it says, 2,000 one that counts each frame twice.";
    }

    counters "The counters as the agent said them: since it started; those of 32 bits wrap." {
        in_octets: u64 = 850 none 18446744073709551615, "bytes", "", "Bytes in.";
        in_unicast_packets: u32 = 851 none 4294967295, "packets", "", "Unicast packets in.";
        in_multicast_packets: u32 = 852 none 4294967295, "packets", "", "Multicast packets in.";
        in_broadcast_packets: u32 = 853 none 4294967295, "packets", "", "Broadcast packets in.";
        in_discards: u32 = 854 none 4294967295, "packets", "", "Packets in that were discarded although nothing was wrong with them.";
        in_errors: u32 = 855 none 4294967295, "packets", "", "Packets in that were broken.";
        in_unknown_protocols: u32 = 856 none 4294967295, "packets", "", "Packets in of protocols that are not known there.";
        out_octets: u64 = 857 none 18446744073709551615, "bytes", "", "Bytes out.";
        out_unicast_packets: u32 = 858 none 4294967295, "packets", "", "Unicast packets out.";
        out_multicast_packets: u32 = 859 none 4294967295, "packets", "", "Multicast packets out.";
        out_broadcast_packets: u32 = 860 none 4294967295, "packets", "", "Broadcast packets out.";
        out_discards: u32 = 861 none 4294967295, "packets", "", "Packets out that were discarded although nothing was wrong with them.";
        out_errors: u32 = 862 none 4294967295, "packets", "", "Packets out that could not be sent.";
    }

    differences "What the counters grew by since the row before, wraps taken into account." {
        in_octets_delta: u64 = 870, "bytes", "", "Bytes in.";
        in_unicast_packets_delta: u32 = 871, "packets", "", "Unicast packets in.";
        in_multicast_packets_delta: u32 = 872, "packets", "", "Multicast packets in.";
        in_broadcast_packets_delta: u32 = 873, "packets", "", "Broadcast packets in.";
        in_discards_delta: u32 = 874, "packets", "", "Discarded packets in.";
        in_errors_delta: u32 = 875, "packets", "", "Broken packets in.";
        in_unknown_protocols_delta: u32 = 876, "packets", "", "Packets in of unknown protocols.";
        out_octets_delta: u64 = 877, "bytes", "", "Bytes out.";
        out_unicast_packets_delta: u32 = 878, "packets", "", "Unicast packets out.";
        out_multicast_packets_delta: u32 = 879, "packets", "", "Multicast packets out.";
        out_broadcast_packets_delta: u32 = 880, "packets", "", "Broadcast packets out.";
        out_discards_delta: u32 = 881, "packets", "", "Discarded packets out.";
        out_errors_delta: u32 = 882, "packets", "", "Packets that could not be sent.";
    }

    rates "The same as averages per second of `interval_ms`, rounded." {
        in_bits_per_sec: u64 = 890, "bits/s", "", "Bits in.";
        in_packets_per_sec: u64 = 891, "packets/s", "", "Packets of all kinds in.";
        out_bits_per_sec: u64 = 892, "bits/s", "", "Bits out.";
        out_packets_per_sec: u64 = 893, "packets/s", "", "Packets of all kinds out.";
    }
}

impl CounterRecord<'_> {
    /// A row with only kind and version set.
    pub fn new(subject: CounterSubject) -> Self {
        CounterRecord {
            record_kind: Some(RecordKind::COUNTERS),
            schema_version: Some(SCHEMA_VERSION),
            subject: Some(subject),
            ..CounterRecord::default()
        }
    }
}

/// On the wire all addresses have 16 bytes.
fn restore_ipv4(counters: &mut CounterRecord<'_>) {
    counters.agent = counters.agent.map(|address: IpAddr| address.to_canonical());
}
