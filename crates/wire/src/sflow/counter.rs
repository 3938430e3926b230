//! The structures of counter samples: facts about an interface, a switch or a host.

mod host;

pub use host::*;

use super::list::List;
use super::structure::{Kind, records, structures};
use super::xdr::{Cursor, Xdr};
use super::{Counter32, Counter64, DataFormat, Fault, Mac, RawRecord, Text, Value};

structures! {
    /// Counters of an interface (RFC 2863).
    IfCounters {
        if_index: u32,
        if_type: u32,
        speed_bits_per_sec: u64,
        /// 0 not known, 1 full duplex, 2 half duplex, 3 in, 4 out.
        direction: u32,
        /// Bit 0: up by administration. Bit 1: up in operation.
        status: u32,
        in_octets: Counter64,
        in_ucast_packets: Counter32,
        in_multicast_packets: Counter32,
        in_broadcast_packets: Counter32,
        in_discards: Counter32,
        in_errors: Counter32,
        in_unknown_protos: Counter32,
        out_octets: Counter64,
        out_ucast_packets: Counter32,
        out_multicast_packets: Counter32,
        out_broadcast_packets: Counter32,
        out_discards: Counter32,
        out_errors: Counter32,
        /// 1 promiscuous, 2 not.
        promiscuous_mode: u32,
    }

    /// Counters of an Ethernet interface (RFC 3635, `dot3StatsTable`).
    EthernetCounters {
        alignment_errors: Counter32,
        fcs_errors: Counter32,
        single_collision_frames: Counter32,
        multiple_collision_frames: Counter32,
        sqe_test_errors: Counter32,
        deferred_transmissions: Counter32,
        late_collisions: Counter32,
        excessive_collisions: Counter32,
        internal_mac_transmit_errors: Counter32,
        carrier_sense_errors: Counter32,
        frame_too_longs: Counter32,
        internal_mac_receive_errors: Counter32,
        symbol_errors: Counter32,
    }

    /// Counters of a VLAN.
    VlanCounters {
        vlan_id: u32,
        octets: Counter64,
        ucast_packets: Counter32,
        multicast_packets: Counter32,
        broadcast_packets: Counter32,
        discards: Counter32,
    }

    /// Counters of an 802.11 interface (`dot11CountersTable`).
    Wifi {
        transmitted_fragments: Counter32,
        multicast_transmitted_frames: Counter32,
        failed: Counter32,
        retries: Counter32,
        multiple_retries: Counter32,
        frame_duplicates: Counter32,
        rts_successes: Counter32,
        rts_failures: Counter32,
        ack_failures: Counter32,
        received_fragments: Counter32,
        multicast_received_frames: Counter32,
        fcs_errors: Counter32,
        transmitted_frames: Counter32,
        wep_undecryptables: Counter32,
        qos_discarded_fragments: Counter32,
        associated_stations: u32,
        qos_cf_polls_received: Counter32,
        qos_cf_polls_unused: Counter32,
        qos_cf_polls_unusable: Counter32,
        qos_cf_polls_lost: Counter32,
    }

    /// A port of an aggregated link (802.1AX).
    LagPort {
        actor_system: Mac,
        partner_system: Mac,
        attached_agg_id: u32,
        /// Of the actor by administration and in operation, then of the partner.
        states: [u8; 4],
        lacp_pdus_rx: Counter32,
        marker_pdus_rx: Counter32,
        marker_response_pdus_rx: Counter32,
        unknown_rx: Counter32,
        illegal_rx: Counter32,
        lacp_pdus_tx: Counter32,
        marker_pdus_tx: Counter32,
        marker_response_pdus_tx: Counter32,
    }

    /// Why a switch handed packets to its processor.
    SlowPath {
        unknown: Counter32,
        other: Counter32,
        cam_miss: Counter32,
        cam_full: Counter32,
        no_hw_support: Counter32,
        control: Counter32,
    }

    /// An optical module.
    Optics<'a> {
        module_id: u32,
        total_lanes: u32,
        supply_mv: u32,
        /// Thousandths of a degree Celsius.
        temperature_mc: i32,
        lanes: List<'a, Lane>,
    }

    /// One lane of an optical module; powers in microwatts, bias in microamperes.
    Lane {
        index: u32,
        tx_bias_ua: u32,
        tx_power_uw: u32,
        tx_power_min_uw: u32,
        tx_power_max_uw: u32,
        tx_wavelength_nm: u32,
        rx_power_uw: u32,
        rx_power_min_uw: u32,
        rx_power_max_uw: u32,
        rx_wavelength_nm: u32,
    }

    /// Counters of priority flow control.
    Pfc {
        requests: Counter32,
        indications: Counter32,
        pause_us: Counter32,
        storm_detected: Counter32,
        storm_restored: Counter32,
    }

    /// A processor of the agent. Shares in hundredths of a percent, -1 if not known.
    Processor {
        cpu_5s: i32,
        cpu_1m: i32,
        cpu_5m: i32,
        total_memory_bytes: u64,
        free_memory_bytes: u64,
    }

    /// A radio.
    Radio {
        elapsed_ms: Counter32,
        on_channel_ms: Counter32,
        on_channel_busy_ms: Counter32,
    }

    /// The port of an OpenFlow switch.
    OpenflowPort {
        datapath_id: u64,
        port: u32,
    }

    /// Name of the port.
    PortName<'a> {
        name: Text<'a>,
    }

    /// An Open vSwitch datapath.
    OvsDatapath {
        hits: Counter32,
        misses: Counter32,
        lost: Counter32,
        mask_hits: Counter32,
        flows: u32,
        masks: u32,
    }

    /// Buffers of a switch, in hundredths of a percent of the most that were in use; -1 if not known.
    BstDevice {
        unicast: i32,
        multicast: i32,
    }

    /// Buffers of a port, in hundredths of a percent of the most that were in use; -1 if not known.
    BstPort<'a> {
        ingress_unicast: i32,
        ingress_multicast: i32,
        egress_unicast: i32,
        egress_multicast: i32,
        egress_queue_unicast: List<'a, i32>,
        egress_queue_multicast: List<'a, i32>,
    }

    /// Tables of a switch.
    AsicTables {
        host_entries: u32,
        host_entries_max: u32,
        ipv4_entries: u32,
        ipv4_entries_max: u32,
        ipv6_entries: u32,
        ipv6_entries_max: u32,
        ipv4_ipv6_entries: u32,
        ipv4_ipv6_entries_max: u32,
        long_ipv6_entries: u32,
        long_ipv6_entries_max: u32,
        total_routes: u32,
        total_routes_max: u32,
        ecmp_nexthops: u32,
        ecmp_nexthops_max: u32,
        mac_entries: u32,
        mac_entries_max: u32,
        ipv4_neighbors: u32,
        ipv6_neighbors: u32,
        ipv4_routes: u32,
        ipv6_routes: u32,
        acl_ingress_entries: u32,
        acl_ingress_entries_max: u32,
        acl_ingress_counters: u32,
        acl_ingress_counters_max: u32,
        acl_ingress_meters: u32,
        acl_ingress_meters_max: u32,
        acl_ingress_slices: u32,
        acl_ingress_slices_max: u32,
        acl_egress_entries: u32,
        acl_egress_entries_max: u32,
        acl_egress_counters: u32,
        acl_egress_counters_max: u32,
        acl_egress_meters: u32,
        acl_egress_meters_max: u32,
        acl_egress_slices: u32,
        acl_egress_slices_max: u32,
    }
}

/// Also an item of a list.
impl<'a> Xdr<'a> for Lane {
    const NAME: &'static str = "lane";
    const MIN_BYTES: usize = 40;

    fn take(from: &mut Cursor<'a>) -> Result<Self, Fault> {
        Self::read(from)
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn value(&self) -> Value<'a> {
        Value::U32(self.index)
    }
}

impl<'a> CounterRecord<'a> {
    /// A structure as some agents encode it, where it is not as it should be: none is known.
    fn of_vendor(_: &RawRecord<'a>) -> Option<Self> {
        None
    }
}

records! {
    /// What is known of an interface, a switch or a host.
    CounterRecord;
    0:1 "if_counters" Interface(IfCounters) "An interface.";
    0:2 "ethernet_counters" Ethernet(EthernetCounters) "An Ethernet interface.";
    0:5 "vlan_counters" Vlan(VlanCounters) "A VLAN.";
    0:6 "80211_counters" Wifi(Wifi) "An 802.11 interface.";
    0:7 "lag_port_stats" LagPort(LagPort) "A port of an aggregated link.";
    0:8 "slow_path_counts" SlowPath(SlowPath) "Why packets went to the switch's processor.";
    0:10 "optics" Optics(Optics<'a>) "An optical module.";
    0:11 "pfc" Pfc(Pfc) "Priority flow control.";
    0:1001 "processor" Processor(Processor) "A processor of the agent.";
    0:1002 "radio_utilization" Radio(Radio) "A radio.";
    0:1004 "of_port" OpenflowPort(OpenflowPort) "A port of an OpenFlow switch.";
    0:1005 "port_name" PortName(PortName<'a>) "The name of a port.";
    0:2000 "host_descr" HostDescription(HostDescription<'a>) "A host.";
    0:2001 "host_adapters" HostAdapters(HostAdapters<'a>) "Interfaces of the host.";
    0:2002 "host_parent" HostParent(HostParent) "What the host runs on.";
    0:2003 "host_cpu" HostCpu(HostCpu) "Processors of the host.";
    0:2004 "host_memory" HostMemory(HostMemory) "Memory of the host.";
    0:2005 "host_disk_io" HostDiskIo(HostDiskIo) "Disks of the host.";
    0:2006 "host_net_io" HostNetIo(NetIo) "Network interfaces of the host.";
    0:2007 "mib2_ip_group" Mib2Ip(Mib2Ip) "IP of the host.";
    0:2008 "mib2_icmp_group" Mib2Icmp(Mib2Icmp) "ICMP of the host.";
    0:2009 "mib2_tcp_group" Mib2Tcp(Mib2Tcp) "TCP of the host.";
    0:2010 "mib2_udp_group" Mib2Udp(Mib2Udp) "UDP of the host.";
    0:2100 "virt_node" VirtNode(VirtNode) "What the host offers to virtual machines.";
    0:2101 "virt_cpu" VirtCpu(VirtCpu) "Processors of a virtual machine.";
    0:2102 "virt_memory" VirtMemory(VirtMemory) "Memory of a virtual machine.";
    0:2103 "virt_disk_io" VirtDiskIo(VirtDiskIo) "Disks of a virtual machine.";
    0:2104 "virt_net_io" VirtNetIo(NetIo) "Network interfaces of a virtual machine.";
    0:2207 "ovs_dp_stats" OvsDatapath(OvsDatapath) "An Open vSwitch datapath.";
    4413:1 "bst_device_buffers" BstDevice(BstDevice) "Buffers of a switch.";
    4413:2 "bst_port_buffers" BstPort(BstPort<'a>) "Buffers of a port.";
    4413:3 "hw_tables" AsicTables(AsicTables) "Tables of a switch.";
    5703:1 "nvidia_gpu" NvidiaGpu(NvidiaGpu) "Graphics processors of the host.";
}
