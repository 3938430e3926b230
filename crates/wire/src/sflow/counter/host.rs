//! Structures of hosts and virtual machines ("sFlow Host Structures").

use crate::sflow::list::Adapters;
use crate::sflow::structure::structures;
use crate::sflow::xdr::{Cursor, Xdr};
use crate::sflow::{Counter32, Counter64, Fault, Text, Value};

structures! {
    /// A host.
    HostDescription<'a> {
        hostname: Text<'a>,
        uuid: [u8; 16],
        /// 0 not known, 1 other, 2 x86, 3 x86_64, 4 ia64, 5 sparc, 6 alpha, 7 powerpc, 8 m68k, 9 mips, 10 arm, 11 hppa, 12 s390.
        machine_type: u32,
        /// 0 not known, 1 other, 2 linux, 3 windows, 4 darwin, 5 hpux, 6 aix, 7 dragonfly, 8 freebsd, 9 netbsd, 10 openbsd, 11 osf, 12 solaris.
        os_name: u32,
        os_release: Text<'a>,
    }

    /// Interfaces of the host.
    HostAdapters<'a> {
        adapters: Adapters<'a>,
    }

    /// What the host runs on.
    HostParent {
        container_class: u32,
        container_index: u32,
    }

    /// Processors of the host.
    HostCpu {
        /// Load averages; -1 if not known.
        load_one: f32,
        load_five: f32,
        load_fifteen: f32,
        processes_running: u32,
        processes_total: u32,
        cpus: u32,
        speed_mhz: u32,
        uptime_seconds: u32,
        user_ms: Counter32,
        nice_ms: Counter32,
        system_ms: Counter32,
        idle_ms: Counter32,
        wait_ms: Counter32,
        interrupt_ms: Counter32,
        soft_interrupt_ms: Counter32,
        interrupts: Counter32,
        contexts: Counter32,
        /// Of agents since 2014; so are the next two.
        steal_ms: Option<Counter32>,
        guest_ms: Option<Counter32>,
        guest_nice_ms: Option<Counter32>,
    }

    /// Memory of the host.
    HostMemory {
        total_bytes: u64,
        free_bytes: u64,
        shared_bytes: u64,
        buffers_bytes: u64,
        cached_bytes: u64,
        swap_total_bytes: u64,
        swap_free_bytes: u64,
        page_in: Counter32,
        page_out: Counter32,
        swap_in: Counter32,
        swap_out: Counter32,
    }

    /// Disks of the host.
    HostDiskIo {
        total_bytes: u64,
        free_bytes: u64,
        /// The fullest partition, in hundredths of a percent; -1 if not known.
        partition_max_used: i32,
        reads: Counter32,
        read_bytes: Counter64,
        read_ms: Counter32,
        writes: Counter32,
        written_bytes: Counter64,
        write_ms: Counter32,
    }

    /// Network interfaces of a host or virtual machine.
    NetIo {
        in_bytes: Counter64,
        in_packets: Counter32,
        in_errors: Counter32,
        in_drops: Counter32,
        out_bytes: Counter64,
        out_packets: Counter32,
        out_errors: Counter32,
        out_drops: Counter32,
    }

    /// IP of the host (RFC 4293).
    Mib2Ip {
        forwarding: u32,
        default_ttl: u32,
        in_receives: Counter32,
        in_header_errors: Counter32,
        in_address_errors: Counter32,
        forwarded_datagrams: Counter32,
        in_unknown_protos: Counter32,
        in_discards: Counter32,
        in_delivers: Counter32,
        out_requests: Counter32,
        out_discards: Counter32,
        out_no_routes: Counter32,
        reassembly_timeout_seconds: u32,
        reassembly_required: Counter32,
        reassembly_oks: Counter32,
        reassembly_fails: Counter32,
        fragment_oks: Counter32,
        fragment_fails: Counter32,
        fragment_creates: Counter32,
    }

    /// ICMP of the host.
    Mib2Icmp {
        in_messages: Counter32,
        in_errors: Counter32,
        in_dest_unreachables: Counter32,
        in_time_exceededs: Counter32,
        in_param_problems: Counter32,
        in_source_quenches: Counter32,
        in_redirects: Counter32,
        in_echos: Counter32,
        in_echo_replies: Counter32,
        in_timestamps: Counter32,
        in_address_masks: Counter32,
        in_address_mask_replies: Counter32,
        out_messages: Counter32,
        out_errors: Counter32,
        out_dest_unreachables: Counter32,
        out_time_exceededs: Counter32,
        out_param_problems: Counter32,
        out_source_quenches: Counter32,
        out_redirects: Counter32,
        out_echos: Counter32,
        out_echo_replies: Counter32,
        out_timestamps: Counter32,
        out_timestamp_replies: Counter32,
        out_address_masks: Counter32,
        out_address_mask_replies: Counter32,
    }

    /// TCP of the host (RFC 4022).
    Mib2Tcp {
        rto_algorithm: u32,
        rto_min_ms: u32,
        rto_max_ms: u32,
        max_connections: u32,
        active_opens: Counter32,
        passive_opens: Counter32,
        attempt_fails: Counter32,
        established_resets: Counter32,
        current_established: u32,
        in_segments: Counter32,
        out_segments: Counter32,
        retrans_segments: Counter32,
        in_errors: Counter32,
        out_resets: Counter32,
        in_checksum_errors: Counter32,
    }

    /// UDP of the host (RFC 4113).
    Mib2Udp {
        in_datagrams: Counter32,
        no_ports: Counter32,
        in_errors: Counter32,
        out_datagrams: Counter32,
        receive_buffer_errors: Counter32,
        send_buffer_errors: Counter32,
        in_checksum_errors: Counter32,
    }

    /// What a host offers to virtual machines.
    VirtNode {
        speed_mhz: u32,
        cpus: u32,
        memory_bytes: u64,
        memory_free_bytes: u64,
        domains: u32,
    }

    /// Processors of a virtual machine.
    VirtCpu {
        state: u32,
        cpu_ms: Counter32,
        cpus: u32,
    }

    /// Memory of a virtual machine.
    VirtMemory {
        memory_bytes: u64,
        max_memory_bytes: u64,
    }

    /// Disks of a virtual machine.
    VirtDiskIo {
        capacity_bytes: u64,
        allocation_bytes: u64,
        physical_bytes: u64,
        reads: Counter32,
        read_bytes: Counter64,
        writes: Counter32,
        written_bytes: Counter64,
        errors: Counter32,
    }

    /// Graphics processors of the host.
    NvidiaGpu {
        device_count: u32,
        processes: u32,
        gpu_ms: Counter32,
        memory_ms: Counter32,
        memory_total_bytes: u64,
        memory_free_bytes: u64,
        ecc_errors: Counter32,
        energy_mj: Counter32,
        temperature_c: u32,
        fan_percent: u32,
    }
}
