//! The table, version 1: every field that Weir exports about a socket. Encoders, decoders, schemas and the field reference are
//! generated from it.
//!
//! A number is assigned once: `tests/numbers.txt` lists them all, and a test fails when one changes or is reused. Numbers 1 to 15
//! take one byte in protobuf; each group has its own range, with room to grow.

use crate::AddressFamily;
use crate::schema::{Message, schema};
use std::net::IpAddr;
use wire::inet_diag::TcpInfo;

/// The version of the table, which every record and all totals carry. Adding a field does not change it: readers skip unknown
/// fields.
pub const SCHEMA_VERSION: u8 = 1;

schema! {
    /// What is known of one TCP socket at one moment: a row. A field that is `None` is not known, which is never the
    /// same as zero: the kernel is older than the field, or the attribute does not exist for this socket, or the field
    /// was not asked for.
    ///
    /// Names are the kernel's without prefix, with the unit last. Plain data; it borrows its texts and bytes.
    SocketRecord<'a> SocketIndex finish restore_ipv4

    identity "Which record this is, of which connection, from where." {
        record_kind: RecordKind = 1, "", "",
            "What the record is about: `poll` is a socket as a poll found it, `close` a connection that ended; a \
             `totals` record has only `totals`; `datagram` is a `DatagramRecord`.";
        time_unix_ns: fixed64 = 2, "ns", "",
            "When the kernel was asked for the datagram that lists the socket, or when the close event was read; since \
             1970, UTC.";
        cookie: u64 = 3, "", "3.3",
            "The kernel's number of the socket, unique until the next boot, across namespaces. (`boot_id`, `cookie`) \
             names a connection permanently. A connection keeps it in TIME_WAIT.";
        poll: u64 = 16, "", "", "Number of the poll that this record belongs to, from 1 at the start of the run (`run_id`).";
        sequence: u64 = 17, "", "",
            "Number of this record among those of its run, from 0; a gap is a record that is missing. (`run_id`, \
             `sequence`) names a record: a store that has it twice has a copy.";
        host: text = 18, "", "", "The host's name, from the configuration or the kernel. Names repeat and change; see `host_id`.";
        boot_id: text = 19, "", "",
            "The kernel's random id of this boot (`/proc/sys/kernel/random/boot_id`), as a UUID.";
        tags: tags = 20, "", "", "Names and values from the configuration.";
        run_id: fixed64 = 21, "", "",
            "Random number of this run of the collector, above 0 and below 2^63: another one whenever it starts or is \
             configured anew.";
        host_id: text = 22, "", "",
            "Which host it is, whatever its name: from the configuration, or else a hash of `/etc/machine-id` for this \
             purpose alone, as a UUID (`systemd-id128 --uuid machine-id --app-specific=d02f7c6e84a14b6bb1a5d1c6a4a7e9f3`). Absent \
             without either.";
        kernel_release: text = 23, "", "", "Release of the kernel that the record is from (`uname -r`).";
        schema_version: u8 = 24, "", "",
            "Version of this table. A field that is added does not change it; a field whose meaning changes does.";
    }

    endpoints "Who talks to whom." {
        family: AddressFamily = 4, "", "",
            "The socket's family. An IPv6 socket may talk IPv4: its addresses are then IPv4 ones, in text like those of an \
             IPv4 socket, in bytes as `::ffff:a.b.c.d`.";
        src_address: address = 5, "", "", "The local address; all zero for a listener on every address.";
        src_port: u16 = 6, "", "", "The local port.";
        dst_address: address = 7, "", "", "The peer's address; all zero for a listener.";
        dst_port: u16 = 8, "", "", "The peer's port; 0 for a listener.";
        interface_index: u32 = 30, "", "", "The interface the socket is bound to (`SO_BINDTODEVICE`); 0 for none.";
        role: ConnectionRole = 31, "", "4.19",
            "Which end opened the connection, as far as the sequence numbers say; absent for a listener.";
    }

    socket "State, queues, timer and options of the socket." {
        state: SocketState = 9, "", "",
            "The state of the connection. A `close` record has `close` here; see `last_state`.";
        timer: SocketTimer = 40, "", "", "The timer that runs.";
        timer_retransmits: u8 = 41, "", "", "Retransmissions or probes that this timer made so far.";
        timer_expires_ms: u32 = 42, "ms", "", "Time until the timer fires.";
        receive_queue: u32 = 43, "bytes", "",
            "Bytes that wait to be read by the application; for a listener, connections that wait to be accepted.";
        send_queue: u32 = 44, "bytes", "",
            "Bytes sent or to be sent that the peer did not acknowledge; for a listener, the limit of its accept \
             queue.";
        uid: u32 = 45, "", "",
            "Owner of the socket, as seen from the reader's user namespace; absent where the kernel names none: of \
             TIME_WAIT and SYN_RECV, and of a socket that nobody has accepted yet or whose program has closed it.";
        inode: u32 = 46, "", "", "Inode of the socket, as in `/proc/PID/fd`; 0 while no process holds it, absent of TIME_WAIT and SYN_RECV.";
        type_of_service: u8 = 47, "", "", "IPv4 type-of-service byte of what is sent (`IP_TOS`): DSCP and ECN bits.";
        traffic_class: u8 = 48, "", "", "IPv6 traffic class of what is sent (`IPV6_TCLASS`); IPv6 sockets only.";
        shutdown: u8 = 49, "flags", "", "Directions that were shut down: 1 receiving, 2 sending.";
        protocol: u8 = 50, "", "", "IP protocol: 6 is TCP, in close events alone; 17 is UDP, in what `weir sockets --udp` prints.";
        v6_only: bool = 51, "", "", "Whether an IPv6 listener refuses IPv4 (`IPV6_V6ONLY`).";
        mark: u32 = 52, "", "4.9", "The firewall mark (`SO_MARK`); given only to readers with CAP_NET_ADMIN.";
        class_id: u32 = 53, "", "5.0", "The net_cls class, or else the socket's priority.";
        socket_options: u16 = 54, "flags", "5.10",
            "Options, one bit each: 1 recverr, 2 is_icsk, 4 freebind, 8 hdrincl, 16 mc_loop, 32 transparent, 64 \
             mc_all, 128 nodefrag, 256 bind_address_no_port, 512 recverr_rfc4884, 1024 defer_connect.";
        has_md5: bool = 55, "", "4.14",
            "Whether TCP MD5 signatures (RFC 2385) are in use; given only to readers with CAP_NET_ADMIN. The keys are \
             never read.";
        ulp: text = 56, "", "5.4", "The upper-layer protocol on the socket: `tls`, `mptcp`, …";
        tls_version: u16 = 57, "", "5.4",
            "Kernel TLS: protocol version, 771 (0x0303) is TLS 1.2, 772 (0x0304) TLS 1.3.";
        tls_cipher: u16 = 58, "", "5.4",
            "Kernel TLS: cipher, by the numbers of `linux/tls.h` (51 AES-GCM-128, 52 AES-GCM-256, 54 \
             ChaCha20-Poly1305, …).";
        tls_receive: TlsMode = 59, "", "5.4", "Kernel TLS: who decrypts what is received.";
        tls_send: TlsMode = 60, "", "5.4", "Kernel TLS: who encrypts what is sent.";
        is_mptcp: bool = 61, "", "5.7", "Whether this is a subflow of a Multipath TCP connection.";
        mptcp_token_local: u32 = 62, "", "5.7",
            "Multipath TCP: our token of the connection; subflows of one connection share it.";
        mptcp_token_remote: u32 = 63, "", "5.7", "Multipath TCP: the peer's token of the connection.";
        mptcp_flags: u32 = 64, "flags", "5.7", "Multipath TCP: `MPTCP_SUBFLOW_FLAG_*` of `linux/mptcp.h`.";
    }

    tcp_info "The kernel's `struct tcp_info`. Absent for TIME_WAIT and for handshakes on the server's side, which have none." {
        tcp_info_state: SocketState = 100 from state, "", "2.4", "The state once more (`tcpi_state`).";
        ca_state: RecoveryState = 101 from ca_state, "", "2.4", "What loss recovery is doing.";
        retransmits: u8 = 102 from retransmits, "", "2.4", "Retransmission timeouts in a row without an answer (`tcpi_retransmits`).";
        probes: u8 = 103 from probes, "", "2.4", "Keepalive or zero-window probes without an answer.";
        backoff: u8 = 104 from backoff, "", "2.4", "How often the retransmission timeout was doubled.";
        options: u8 = 105 from options, "flags", "2.4",
            "What was agreed: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN, 16 ECN seen, 32 data in the SYN was \
             acknowledged, 64 microsecond timestamps (6.7), 128 accepted through Fast Open (6.16).";
        snd_wscale: u8 = 106 from snd_wscale, "bits", "2.6", "Window scale that the peer asked for: shift of the windows it announces.";
        rcv_wscale: u8 = 107 from rcv_wscale, "bits", "2.6", "Our window scale: shift of the windows we announce.";
        delivery_rate_app_limited: bool = 108 from delivery_rate_app_limited, "", "4.9",
            "Whether the application sent too little for `delivery_rate_bytes_per_sec` to show the path's speed.";
        fastopen_client_fail: FastOpenFailure = 109 from fastopen_client_fail, "", "5.5",
            "Why Fast Open did not work, on the side that connects.";
        rto_us: u32 = 110 from rto_us, "µs", "2.4", "Retransmission timeout now.";
        ato_us: u32 = 111 from ato_us, "µs", "2.4", "Delayed-acknowledgement timeout.";
        snd_mss_bytes: u32 = 112 from snd_mss_bytes, "bytes", "2.4", "Largest segment we send, without headers.";
        rcv_mss_bytes: u32 = 113 from rcv_mss_bytes, "bytes", "2.4", "Largest segment the peer seems to send, an estimate.";
        unacked_segments: u32 = 114 from unacked_segments, "segments", "2.4",
            "Segments sent and not acknowledged in order. For a listener: connections that wait to be accepted now.";
        sacked_segments: u32 = 115 from sacked_segments, "segments", "2.4",
            "Segments in flight that the peer acknowledged selectively. For a listener: the limit of its accept \
             queue.";
        lost_segments: u32 = 116 from lost_segments, "segments", "2.4", "Segments in flight that are taken for lost now; not a total.";
        retrans_segments: u32 = 117 from retrans_segments, "segments", "2.4", "Retransmitted segments that are in flight now; not a total.";
        fackets_segments: u32 = 118 from fackets_segments, "segments", "2.4", "Unused by the kernel since 4.15: 0.";
        last_data_sent_ms: u32 = 119 from last_data_sent_ms, "ms", "2.4", "Time since data was last sent.";
        last_ack_sent_ms: u32 = 120 from last_ack_sent_ms, "ms", "2.4", "The kernel does not keep it: 0.";
        last_data_recv_ms: u32 = 121 from last_data_recv_ms, "ms", "2.4", "Time since data was last received.";
        last_ack_recv_ms: u32 = 122 from last_ack_recv_ms, "ms", "2.4", "Time since an acknowledgement was last received.";
        pmtu_bytes: u32 = 123 from pmtu_bytes, "bytes", "2.4", "Path MTU, with headers.";
        rcv_ssthresh_bytes: u32 = 124 from rcv_ssthresh_bytes, "bytes", "2.4",
            "Limit of the receive window now. In bytes, unlike `snd_ssthresh_segments`.";
        rtt_us: u32 = 10 from rtt_us, "µs", "2.4", "Smoothed round-trip time; 0 before the first sample.";
        rttvar_us: u32 = 125 from rttvar_us, "µs", "2.4", "Mean deviation of the round-trip time.";
        snd_ssthresh_segments: u32 = 126 none 2147483647 from snd_ssthresh_segments, "segments", "2.4",
            "Slow-start threshold; absent before the first loss.";
        snd_cwnd_segments: u32 = 11 from snd_cwnd_segments, "segments", "2.4", "Congestion window, in segments of `snd_mss_bytes`.";
        advmss_bytes: u32 = 127 from advmss_bytes, "bytes", "2.4", "Largest segment we told the peer to send.";
        reordering_segments: u32 = 128 from reordering_segments, "segments", "2.4",
            "Reordering that is taken as normal: losses are assumed beyond it.";
        rcv_rtt_us: u32 = 129 from rcv_rtt_us, "µs", "2.6",
            "Round-trip time as the receiving side estimates it; 0 if it received too little.";
        rcv_space_bytes: u32 = 130 from rcv_space_bytes, "bytes", "2.6",
            "What the application read in one round trip, by which the receive buffer is tuned.";
        total_retrans_segments: u32 = 131 from total_retrans_segments, "segments", "2.6", "Retransmitted segments so far. Wraps at 2^32.";
        pacing_rate_bytes_per_sec: u64 = 132 none 18446744073709551615 from pacing_rate_bytes_per_sec, "bytes/s", "3.15",
            "Rate the sender is paced at; absent if it is unlimited.";
        max_pacing_rate_bytes_per_sec: u64 = 133 none 18446744073709551615 from max_pacing_rate_bytes_per_sec, "bytes/s", "3.15",
            "Limit that the application set (`SO_MAX_PACING_RATE`); absent if it set none.";
        bytes_acked: u64 = 12 from bytes_acked, "bytes", "4.1",
            "Bytes of ours that the peer acknowledged so far; our FIN counts as one, and so does the SYN of the side that \
             connects.";
        bytes_received: u64 = 13 from bytes_received, "bytes", "4.1", "Bytes received in order so far; FIN counts as one.";
        segs_out: u32 = 134 from segs_out, "segments", "4.2",
            "Segments sent so far, acknowledgements and retransmissions too. Wraps at 2^32.";
        segs_in: u32 = 135 from segs_in, "segments", "4.2", "Segments received so far, acknowledgements too. Wraps at 2^32.";
        notsent_bytes: u32 = 136 from notsent_bytes, "bytes", "4.6", "Bytes in the send queue that were never sent.";
        min_rtt_us: u32 = 14 none 4294967295 from min_rtt_us, "µs", "4.6",
            "Smallest round-trip time in the kernel's window (`tcp_min_rtt_wlen`, 300 s); absent before the first sample.";
        data_segs_in: u32 = 137 from data_segs_in, "segments", "4.6", "Segments with data received so far. Wraps at 2^32.";
        data_segs_out: u32 = 138 from data_segs_out, "segments", "4.6",
            "Segments with data sent so far, retransmissions too. Wraps at 2^32.";
        delivery_rate_bytes_per_sec: u64 = 139 from delivery_rate_bytes_per_sec, "bytes/s", "4.9",
            "Rate at which data was last delivered; see `delivery_rate_app_limited`.";
        busy_time_us: u64 = 140 from busy_time_us, "µs", "4.10", "Time with data in flight or waiting to be sent, so far.";
        rwnd_limited_us: u64 = 141 from rwnd_limited_us, "µs", "4.10", "Part of `busy_time_us` that the peer's receive window held us up.";
        sndbuf_limited_us: u64 = 142 from sndbuf_limited_us, "µs", "4.10", "Part of `busy_time_us` that our own send buffer held us up.";
        delivered_segments: u32 = 143 from delivered_segments, "segments", "4.18",
            "Segments that the peer got so far, selective acknowledgements included. Wraps at 2^32.";
        delivered_ce_segments: u32 = 144 from delivered_ce_segments, "segments", "4.18",
            "Those of `delivered_segments` that the peer reported as congestion-marked. Wraps at 2^32.";
        bytes_sent: u64 = 145 from bytes_sent, "bytes", "4.19", "Bytes of data sent so far, retransmissions included.";
        bytes_retrans: u64 = 15 from bytes_retrans, "bytes", "4.19", "Bytes of data retransmitted so far.";
        dsack_dups: u32 = 146 from dsack_dups, "segments", "4.19",
            "Duplicates that the peer reported (DSACK) so far: retransmissions that were not needed.";
        reord_seen: u32 = 147 from reord_seen, "events", "4.19", "How often reordering was seen on the way to the peer.";
        rcv_ooopack: u32 = 148 from rcv_ooopack, "segments", "5.4", "Segments received out of order so far.";
        snd_wnd_bytes: u32 = 149 from snd_wnd_bytes, "bytes", "5.4", "Window that the peer announced last.";
        rcv_wnd_bytes: u32 = 150 from rcv_wnd_bytes, "bytes", "6.2", "Window that we announced last.";
        rehash: u32 = 151 from rehash, "events", "6.2", "How often the flow hash was changed to find another path (PLB, timeouts).";
        total_rto: u16 = 152 from total_rto, "events", "6.7", "Retransmission timeouts so far. Wraps at 2^16.";
        total_rto_recoveries: u16 = 153 from total_rto_recoveries, "events", "6.7",
            "Recoveries from retransmission timeouts so far, one that goes on included. Wraps at 2^16.";
        total_rto_time_ms: u32 = 154 from total_rto_time_ms, "ms", "6.7",
            "Time spent in recoveries from timeouts so far, one that goes on included. In ms, unlike `rto_us`.";
        received_ce_segments: u32 = 155 from received_ce_segments, "segments", "6.18", "Congestion-marked segments received so far.";
        delivered_e1_bytes: u32 = 156 from delivered_e1_bytes, "bytes", "6.18",
            "AccECN: bytes of ours that arrived marked ECT(1), by the peer's count. Wraps at 2^32.";
        delivered_e0_bytes: u32 = 157 from delivered_e0_bytes, "bytes", "6.18",
            "AccECN: bytes of ours that arrived marked ECT(0), by the peer's count. Wraps at 2^32.";
        delivered_ce_bytes: u32 = 158 from delivered_ce_bytes, "bytes", "6.18",
            "AccECN: bytes of ours that arrived congestion-marked, by the peer's count. Wraps at 2^32.";
        received_e1_bytes: u32 = 159 from received_e1_bytes, "bytes", "6.18", "AccECN: bytes received marked ECT(1). Wraps at 2^32.";
        received_e0_bytes: u32 = 160 from received_e0_bytes, "bytes", "6.18", "AccECN: bytes received marked ECT(0). Wraps at 2^32.";
        received_ce_bytes: u32 = 161 from received_ce_bytes, "bytes", "6.18", "AccECN: bytes received congestion-marked. Wraps at 2^32.";
        ecn_mode: EcnMode = 162, "", "7.0", "What was agreed about ECN.";
        accecn_opt_seen: AccEcnOption = 163, "", "6.18",
            "AccECN: what was seen of the peer's option; absent where the kernel's release is not known, see \
             `accecn_word`.";
        accecn_fail_mode: u8 = 164, "flags", "6.18",
            "AccECN: what does not get through, one bit each: 1 our ACE field, 2 the peer's, 4 our option, 8 the \
             peer's. Absent where the kernel's release is not known, see `accecn_word`.";
        options2: u32 = 165, "flags", "7.0", "More options, 24 bits (`tcpi_options2`).";
    }

    congestion "The congestion control algorithm, and what it says of itself." {
        congestion_algorithm: text = 200, "", "", "Name of the algorithm: `cubic`, `bbr`, …";
        vegas_enabled: u32 = 201, "", "", "Vegas, YeAH: whether it is in control now (1) or has fallen back to Reno (0). Illinois, LP, NV and Westwood \
             fill these four fields too, with 1 here.";
        vegas_rtt_count: u32 = 202, "", "", "Vegas: round-trip times measured in this round.";
        vegas_rtt_us: u32 = 203 none 2147483647, "µs", "", "Vegas, YeAH: smallest round-trip time ever; absent if none. NV, Westwood: the last one. \
             Illinois, LP: the mean of this round, 0 if none.";
        vegas_min_rtt_us: u32 = 204 none 2147483647, "µs", "",
            "Vegas, YeAH: smallest round-trip time of this round; absent if none. Others: the smallest seen.";
        dctcp_enabled: u16 = 205, "", "4.1", "DCTCP: whether both sides agreed on ECN (1), or it works as Reno (0).";
        dctcp_ce_state: u16 = 206, "", "4.1", "DCTCP: whether the last segment received was congestion-marked.";
        dctcp_alpha: u32 = 207, "1/1024", "4.1", "DCTCP: estimated share of marked bytes; 1024 is all.";
        dctcp_ab_ecn_bytes: u32 = 208, "bytes", "4.1", "DCTCP: acknowledged bytes that were marked, in this window.";
        dctcp_ab_tot_bytes: u32 = 209, "bytes", "4.1", "DCTCP: acknowledged bytes, in this window.";
        bbr_bw_bytes_per_sec: u64 = 210, "bytes/s", "4.9",
            "BBR: the path's bandwidth as estimated, the largest in its window.";
        bbr_min_rtt_us: u32 = 211, "µs", "4.9", "BBR: smallest round-trip time in its window of 10 s.";
        bbr_pacing_gain: u32 = 212, "1/256", "4.9", "BBR: pacing rate over bandwidth; 256 is 1.";
        bbr_cwnd_gain: u32 = 213, "1/256", "4.9", "BBR: congestion window over bandwidth-delay product; 256 is 1.";
        bbr_tail: bytes = 214, "", "",
            "BBR: what a newer algorithm's block has behind these fields (BBRv2, BBRv3), raw.";
    }

    memory "The socket's memory, as the kernel accounts it: buffers with their overhead, not payload." {
        rmem_alloc_bytes: u32 = 240, "bytes", "", "Held by data received and not read.";
        rcvbuf_bytes: u32 = 241, "bytes", "", "Limit of the receive buffer (`SO_RCVBUF`, as doubled by the kernel).";
        wmem_alloc_bytes: u32 = 242, "bytes", "", "Held by segments given to the device and not freed.";
        sndbuf_bytes: u32 = 243, "bytes", "", "Limit of the send buffer (`SO_SNDBUF`, as doubled by the kernel).";
        fwd_alloc_bytes: u32 = 244, "bytes", "", "Set aside for the socket and not in use.";
        wmem_queued_bytes: u32 = 245, "bytes", "", "Held by data sent and not acknowledged, and by data to be sent.";
        optmem_bytes: u32 = 246, "bytes", "", "Held by options and filters.";
        backlog_bytes: u32 = 247, "bytes", "", "Held by segments that arrived while the socket was in use.";
        drops: u32 = 248, "segments", "4.7", "Segments that this socket dropped so far. Wraps at 2^32.";
        meminfo_rmem_bytes: u32 = 249, "bytes", "",
            "The same as `rmem_alloc_bytes`, from the older attribute (`INET_DIAG_MEMINFO`).";
        meminfo_wmem_bytes: u32 = 250, "bytes", "", "The same as `wmem_queued_bytes`, from the older attribute.";
        meminfo_fmem_bytes: u32 = 251, "bytes", "", "The same as `fwd_alloc_bytes`, from the older attribute.";
        meminfo_tmem_bytes: u32 = 252, "bytes", "", "The same as `wmem_alloc_bytes`, from the older attribute.";
    }

    attribution "Whose socket it is." {
        netns_inode: u64 = 270, "", "",
            "Inode of the network namespace, as in `/proc/PID/ns/net`: its identity on this host.";
        netns_name: text = 271, "", "", "Name or path of the network namespace, where it has one.";
        netns_id: u32 = 272, "", "",
            "Id of the namespace as seen from ours (`ip netns list-id`), where one is assigned.";
        cgroup_id: u64 = 273, "", "5.8", "Id of the cgroup (v2) of the process that made the socket.";
        cgroup_path: text = 274, "", "", "Path of that cgroup below the cgroup file system.";
        pod_uid: text = 275, "", "", "UID of the Kubernetes pod, from the path.";
        container_id: text = 276, "", "", "Id of the container, from the path.";
        systemd_unit: text = 277, "", "", "The systemd unit, from the path.";
        process_id: u32 = 278, "", "",
            "A process that holds the socket, where that was asked for (`processes = true`, `--processes`); the lowest if there \
             are several. On closing records: the one that held it in the last poll that found one.";
        process_name: text = 279, "", "",
            "That process's name, up to 15 bytes; chosen by the process, so do not trust it.";
        netns_cookie: u64 = 280, "", "5.14",
            "The kernel's number of the network namespace, which no other has until the next boot. An inode is given \
             again soon after its namespace has gone.";
    }

    close "How a connection ended. Records of kind `close` only, but for `first_seen_unix_ns`." {
        close_reason: CloseReason = 300, "", "", "How it ended, as far as the last poll and the close event say.";
        last_state: SocketState = 301, "", "", "The state in which the last poll saw it; absent if no poll did.";
        first_seen_unix_ns: fixed64 = 302, "ns", "",
            "When a poll first saw it, also on records of kind `poll`. Absent if none did: it was shorter than the time \
             between two polls.";
        last_seen_unix_ns: fixed64 = 303, "ns", "", "When a poll last saw it.";
        seen_ns: u64 = 304, "ns", "", "From the first poll that saw it to its end: at least this long it lived.";
        polls_seen: u32 = 305, "polls", "", "Polls that saw it; 0 is a connection that only its close event shows.";
        counters_from: CountersFrom = 307, "", "",
            "Whose the counters are: final ones, of the close `event`; those of the `last_poll`, because the kernel cleared \
             its own before it reported the close (an abort does); or `unknown`, because no poll had seen them: then they \
             are absent.";
    }

    delta "What was added since the last record of the same connection that has counters. Absent on the first, whose counters are \
           what came before; so the first record's counter and all differences since add up to the last record's \
           counter. Absent too where counters are not known: on records without `tcp_info`, and of an abort, which clears them." {
        since_ns: u64 = 350, "ns", "", "Time since that record, by a clock that is never set.";
        bytes_sent_delta: u64 = 351, "bytes", "4.19", "Added to `bytes_sent`.";
        bytes_acked_delta: u64 = 352, "bytes", "4.1", "Added to `bytes_acked`.";
        bytes_received_delta: u64 = 353, "bytes", "4.1", "Added to `bytes_received`.";
        bytes_retrans_delta: u64 = 354, "bytes", "4.19", "Added to `bytes_retrans`.";
        segs_out_delta: u32 = 355, "segments", "4.2", "Added to `segs_out`, modulo 2^32.";
        segs_in_delta: u32 = 356, "segments", "4.2", "Added to `segs_in`, modulo 2^32.";
        total_retrans_segments_delta: u32 = 357, "segments", "2.6", "Added to `total_retrans_segments`, modulo 2^32.";
        busy_time_us_delta: u64 = 358, "µs", "4.10", "Added to `busy_time_us`.";
        rwnd_limited_us_delta: u64 = 359, "µs", "4.10", "Added to `rwnd_limited_us`.";
        sndbuf_limited_us_delta: u64 = 360, "µs", "4.10", "Added to `sndbuf_limited_us`.";
    }

    raw "What this version of Weir has no name for, kept as the kernel gave it." {
        tcp_info_len_bytes: u16 = 330, "bytes", "",
            "Length of `tcp_info` as this kernel gave it; fields beyond are absent.";
        tcp_info_tail: bytes = 331, "", "", "`tcp_info` beyond the 280 bytes that are known.";
        accecn_word: u32 = 333, "", "6.18",
            "The last 4 of the 280 bytes of `tcp_info` as a number of the host's byte order, where it is not known which \
             kernel wrote them (a capture, a release that should not have them): 6.18 and 6.19 hold other fields there \
             than 7.0 and later.";
        unknown_attributes: bytes = 332, "", "",
            "Unknown netlink attributes one after another: u16 length with this header, u16 type, payload, padding to \
             4 bytes; host byte order.";
    }
}

impl SocketRecord<'_> {
    /// Takes every field of `tcp_info` that this kernel has, by the rows that name one.
    #[inline]
    pub fn fill_tcp_info(&mut self, info: &TcpInfo<'_>) {
        Message::fill_tcp_info(self, info);
    }
}

/// On the wire all addresses have 16 bytes, and the family shows which were IPv4.
fn restore_ipv4(record: &mut SocketRecord<'_>) {
    if record.family == Some(AddressFamily::INET) {
        for address in [&mut record.src_address, &mut record.dst_address] {
            if let Some(IpAddr::V6(v6)) = address
                && let Some(v4) = v6.to_ipv4_mapped()
            {
                *address = Some(IpAddr::V4(v4));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::inet_diag::tcp_info::FIELDS;

    /// Fields of `tcp_info` that no field of a record is filled from directly.
    const DIVIDED: &[(&str, &str)] = &[(
        "accecn_word",
        "its layout depends on the kernel: where that is known, `ecn_mode` and the fields below it are its parts",
    )];

    #[test]
    fn every_field_of_tcp_info_is_in_the_record_once_and_since_the_same_kernel() {
        for field in FIELDS {
            let rows: Vec<_> = SocketRecord::FIELDS
                .iter()
                .filter(|row| row.tcp_info_field == Some(field.name))
                .collect();
            match (rows.as_slice(), DIVIDED.iter().find(|(name, _)| *name == field.name)) {
                ([row], None) => assert_eq!(row.kernel, field.since, "{}", row.name),
                ([], Some(_)) => {}
                _ => panic!("{} has {} rows in the record's table", field.name, rows.len()),
            }
        }
    }
}
