//! Turns the kernel's message into a record: names everything and computes nothing.

use crate::ends::{Role, role_of_listed};
use crate::says;
use record::{
    AccEcnOption, AddressFamily, EcnMode, SocketRecord, SocketState, SocketTimer, TlsMode,
};
use std::sync::OnceLock;
use wire::inet_diag::{AccEcnLayout, SocketMessage, TcpInfo, Ulp};

/// The layout of this machine's kernel for accurate ECN state. `None` if its release does not tell.
pub(crate) fn own_accecn_layout() -> Option<AccEcnLayout> {
    // The release does not change while the machine runs.
    static LAYOUT: OnceLock<Option<AccEcnLayout>> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
        AccEcnLayout::of_release(release.trim_ascii())
    })
}

/// Fills in the content of the kernel's message: endpoints, socket, `tcp_info`, congestion, memory, and attributes without a name
/// here. The layout is that of the kernel that wrote the message: [`own_accecn_layout`], or `None` for a message from a file.
pub(crate) fn fill<'a>(
    record: &mut SocketRecord<'a>,
    message: &SocketMessage<'a>,
    accecn: Option<AccEcnLayout>,
) {
    record.cookie = Some(message.id.cookie);
    record.family = Some(AddressFamily(message.family.number()));
    record.src_address = Some(message.id.src.ip());
    record.src_port = Some(message.id.src.port());
    record.dst_address = Some(message.id.dst.ip());
    record.dst_port = Some(message.id.dst.port());
    record.interface_index = Some(message.id.interface_index);
    record.role = role_of_listed(message).map(Role::word);

    record.state = Some(SocketState(message.state.number()));
    record.timer = Some(SocketTimer(message.timer.number()));
    record.timer_retransmits = Some(message.retransmits);
    record.timer_expires_ms = Some(message.expires_ms);
    record.receive_queue = Some(message.receive_queue);
    record.send_queue = Some(message.send_queue);
    record.uid = says::uid(message);
    record.inode = says::inode(message);
    record.type_of_service = message.type_of_service;
    record.traffic_class = message.traffic_class;

    record.shutdown = message.shutdown;
    record.protocol = message.protocol;
    record.v6_only = message.v6_only;
    record.mark = message.mark;
    record.class_id = message.class_id;
    record.socket_options = message.socket_options.map(|options| options.bits());

    // The kernel shows these two only to readers with CAP_NET_ADMIN. For others their absence means nothing.
    let no = says::is_for_admin(message).then_some(false);
    record.has_md5 = if message.has_md5 { Some(true) } else { no };
    record.is_mptcp = no;

    record.congestion_algorithm = message.congestion;
    record.cgroup_id = message.cgroup_id;
    if let Some(info) = &message.tcp_info {
        record.fill_tcp_info(info);
        record.tcp_info_len_bytes = Some(info.length_bytes() as u16);
        fill_accecn(record, info, accecn);
    }
    record.tcp_info_tail = Some(message.tcp_info_tail).filter(|tail| !tail.is_empty());
    if let Some(ulp) = &message.ulp {
        fill_ulp(record, ulp);
    }

    fill_congestion(record, message);
    fill_memory(record, message);
}

/// Fills in the content of a close event. Leaves out zeros that are not values, because the kernel has cleared those fields.
pub(crate) fn fill_close<'a>(
    record: &mut SocketRecord<'a>,
    event: &SocketMessage<'a>,
    accecn: Option<AccEcnLayout>,
) {
    let is_aborted = says::is_aborted(event);
    if is_aborted {
        // The kernel clears the counters before it sends the event (`tcp_disconnect`), so zeros here are not values.
        let mut left = *event;
        (left.tcp_info, left.tcp_info_tail) = (None, &[]);
        fill(record, &left, accecn);
        (record.receive_queue, record.send_queue) = (None, None);
    } else {
        fill(record, event, accecn);
        // See `says::CLEARED_BEFORE_CLOSE`.
        (record.unacked_segments, record.backoff) = (None, None);
    }

    // A socket that is being destroyed has lost its owner, its inode and its timers.
    (record.uid, record.inode) = (None, None);
    (record.timer, record.timer_retransmits, record.timer_expires_ms) = (None, None, None);
    record.src_address = record.src_address.and_then(says::closed_address);
    record.src_port = record.src_port.and_then(says::closed_port);
    record.dst_address = record.dst_address.and_then(says::closed_address);
    record.dst_port = record.dst_port.and_then(says::closed_port);
}

/// Splits the accurate ECN state into its fields, or keeps the raw word if the layout is unknown.
fn fill_accecn(record: &mut SocketRecord<'_>, info: &TcpInfo, layout: Option<AccEcnLayout>) {
    match layout.and_then(|layout| info.accecn(layout)) {
        Some(accecn) => {
            record.ecn_mode = accecn.ecn_mode.map(EcnMode);
            record.accecn_opt_seen = Some(AccEcnOption(accecn.opt_seen));
            record.accecn_fail_mode = Some(accecn.fail_mode);
            record.options2 = accecn.options2;
        }
        None => record.accecn_word = info.accecn_word(),
    }
}

fn fill_ulp<'a>(record: &mut SocketRecord<'a>, ulp: &Ulp<'a>) {
    record.ulp = ulp.name;
    if let Some(tls) = &ulp.tls {
        record.tls_version = tls.version;
        record.tls_cipher = tls.cipher;
        record.tls_receive = tls.rx_conf.map(|mode| TlsMode(mode as u8));
        record.tls_send = tls.tx_conf.map(|mode| TlsMode(mode as u8));
    }

    if let Some(mptcp) = &ulp.mptcp {
        record.is_mptcp = Some(true);
        record.mptcp_token_local = mptcp.token_local;
        record.mptcp_token_remote = mptcp.token_remote;
        record.mptcp_flags = mptcp.subflow_flags;
    }
}

fn fill_congestion<'a>(record: &mut SocketRecord<'a>, message: &SocketMessage<'a>) {
    if let Some(vegas) = &message.vegas {
        record.vegas_enabled = Some(vegas.enabled);
        record.vegas_rtt_count = Some(vegas.rtt_count);
        record.vegas_rtt_us = Some(vegas.rtt_us);
        record.vegas_min_rtt_us = Some(vegas.min_rtt_us);
    }

    if let Some(dctcp) = &message.dctcp {
        record.dctcp_enabled = Some(dctcp.enabled);
        record.dctcp_ce_state = Some(dctcp.ce_state);
        record.dctcp_alpha = Some(dctcp.alpha);
        record.dctcp_ab_ecn_bytes = Some(dctcp.ab_ecn_bytes);
        record.dctcp_ab_tot_bytes = Some(dctcp.ab_tot_bytes);
    }

    if let Some(bbr) = &message.bbr {
        record.bbr_bw_bytes_per_sec = Some(bbr.bandwidth_bytes_per_sec);
        record.bbr_min_rtt_us = Some(bbr.min_rtt_us);
        record.bbr_pacing_gain = Some(bbr.pacing_gain);
        record.bbr_cwnd_gain = Some(bbr.cwnd_gain);
        record.bbr_tail = Some(bbr.tail).filter(|tail| !tail.is_empty());
    }
}

fn fill_memory(record: &mut SocketRecord<'_>, message: &SocketMessage<'_>) {
    if let Some(memory) = &message.memory {
        record.rmem_alloc_bytes = Some(memory.rmem_alloc_bytes);
        record.rcvbuf_bytes = Some(memory.rcvbuf_bytes);
        record.wmem_alloc_bytes = Some(memory.wmem_alloc_bytes);
        record.sndbuf_bytes = Some(memory.sndbuf_bytes);
        record.fwd_alloc_bytes = Some(memory.fwd_alloc_bytes);
        record.wmem_queued_bytes = Some(memory.wmem_queued_bytes);
        record.optmem_bytes = Some(memory.optmem_bytes);
        record.backlog_bytes = Some(memory.backlog_bytes);
        record.drops = memory.drops;
    }

    if let Some(meminfo) = &message.meminfo {
        record.meminfo_rmem_bytes = Some(meminfo.rmem_bytes);
        record.meminfo_wmem_bytes = Some(meminfo.wmem_bytes);
        record.meminfo_fmem_bytes = Some(meminfo.fmem_bytes);
        record.meminfo_tmem_bytes = Some(meminfo.tmem_bytes);
    }
}

/// Appends the attributes without a name here, one after another as the kernel wrote them. Appends nothing if there are none.
pub(crate) fn unknown_attributes(message: &SocketMessage<'_>, out: &mut Vec<u8>) {
    for (kind, payload) in message.unknown_attributes() {
        let len = 4 + payload.len();
        out.extend_from_slice(&(len as u16).to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(payload);
        out.resize(out.len() + len.next_multiple_of(4) - len, 0);
    }
}
