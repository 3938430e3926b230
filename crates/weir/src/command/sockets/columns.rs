//! The columns of the table: what each shows, from which fields, and by what it sorts.

use super::cells::{
    age_ms, byte_rate, bytes, cwnd, delivery_rate, drop_rate_key, event_rate, idle_ms, limit_key,
    local_key, min_rtt, namespace_key, number, pacing_rate, peer_key, put_drop_rate, put_drops,
    put_ended, put_limited, put_local, put_namespace, put_or_dash, put_peer, put_process,
    put_receive_queue, put_retrans, put_retrans_rate, put_send_queue, put_state, put_user,
    put_waiting, rate_key, short, ssthresh, text_key, unacked,
};
use super::rates::Moved;
use record::SocketRecord;
use sockets::attribution::Users;
use std::time::Duration;
use text::{Align, Tint, escaped, short_time, time_of_day};

/// One socket, and what we know of it beyond its record.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) record: &'a SocketRecord<'a>,
    /// Changes since the last poll; empty in the first poll that shows the socket.
    pub(super) moved: Moved,
    /// How long polls have seen it, if there is more than one poll.
    pub(super) age: Option<Duration>,
    /// Number of processes that hold it.
    pub(super) owners: u32,
    /// The interface it is bound to, by name or number.
    pub(super) interface: Option<&'a str>,
    pub(super) users: &'a Users,
}

impl<'a> View<'a> {
    /// A record without further knowledge.
    pub(super) fn of(record: &'a SocketRecord<'a>, users: &'a Users) -> View<'a> {
        View { record, moved: Moved::default(), age: None, owners: 0, interface: None, users }
    }
}

/// A row's sort key. An absent value comes last.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    Number(u64),
    /// Address and port; IPv4 sorts as mapped IPv6.
    Address([u8; 18]),
    Text(Box<str>),
    Absent,
}

/// A column that is more than one plain field.
pub(super) struct Column {
    /// Its name on the command line.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) align: Align,
    /// If a line is too long, the column of the lowest weight goes first.
    pub(super) weight: u8,
    /// Width when lines are printed as they arrive.
    pub(super) usual_width: usize,
    /// The fields it is made of: what `--columns` means by it for records.
    pub(super) fields: &'static [&'static str],
    pub(super) meaning: &'static str,
    pub(super) key: fn(&View<'_>) -> Key,
    pub(super) put: fn(&View<'_>, &mut String) -> Tint,
}

/// Columns of connections.
pub(super) const CONNECTIONS: &[&str] = &[
    "state", "local", "peer", "recv_q", "send_q", "rtt", "min_rtt", "cwnd", "retrans", "rate",
    "limited", "idle",
];
/// Columns of `--listening`.
pub(super) const LISTENERS: &[&str] = &["local", "waiting", "backlog", "user"];
/// Columns of `--udp`.
pub(super) const DATAGRAMS: &[&str] =
    &["state", "local", "peer", "recv_q", "send_q", "drops", "rmem", "rcvbuf", "user"];
/// Columns of `--udp --watch`.
pub(super) const DATAGRAMS_WATCHED: &[&str] =
    &["state", "local", "peer", "drops/s", "drops", "recv_q", "send_q", "rcvbuf", "user"];
/// Columns of `--watch`.
pub(super) const WATCHED: &[&str] = &[
    "state",
    "local",
    "peer",
    "out",
    "in",
    "retrans/s",
    "segs_out/s",
    "segs_in/s",
    "send_q",
    "rtt",
    "cwnd",
    "limited",
];
/// Columns of `--closed`.
pub(super) const CLOSED: &[&str] =
    &["time", "local", "peer", "ended", "seen", "sent", "received", "retrans", "rtt", "min_rtt"];
/// Columns of `--receive`.
pub(super) const RECEIVED: &[&str] = &[
    "time", "host", "state", "local", "peer", "recv_q", "send_q", "rtt", "cwnd", "retrans", "rate",
    "ended",
];
/// Shown below each row with `--info`.
pub(super) const INFO: &[&str] = &[
    "cc", "mss", "ssthresh", "rto", "unacked", "min_rtt", "pacing", "sent", "received", "limited",
    "idle",
];
/// Shown below each row with `--extended`.
pub(super) const EXTENDED: &[&str] = &["user", "inode", "cookie", "cgroup_path"];
/// Shown below each row with `--memory`.
pub(super) const MEMORY: &[&str] = &["rmem", "rcvbuf", "wmem", "sndbuf", "drops"];
/// Shown below each row with `--options`.
pub(super) const TIMER: &[&str] = &["timer", "timer_expires_ms", "timer_retransmits"];

macro_rules! columns {
    ($($name:literal $title:literal $align:ident $weight:literal $width:literal [$($field:literal),*] $key:expr, $put:expr, $meaning:literal;)+) => {
        /// All columns. Their order does not matter.
        pub(super) const COLUMNS: &[Column] = &[$(Column {
            name: $name,
            title: $title,
            align: Align::$align,
            weight: $weight,
            usual_width: $width,
            fields: &[$($field),*],
            meaning: $meaning,
            key: $key,
            put: $put,
        },)+];
    };
}

columns! {
    "state" "STATE" Left 8 10 ["state"] |v| number(v.record.state.map(|state| state.0)), put_state,
        "State, as ss names it";
    "local" "LOCAL" Left 12 30 ["src_address", "src_port"] local_key, put_local,
        "Local address and port; * is every address of both families; %name is the interface that it is bound to";
    "peer" "PEER" Left 12 30 ["dst_address", "dst_port"] peer_key, put_peer,
        "The peer's address and port";
    "recv_q" "RECV-Q" Right 8 8 ["receive_queue"] |v| number(v.record.receive_queue), put_receive_queue,
        "Bytes that the application has not read yet; of a listener, the connections that wait";
    "send_q" "SEND-Q" Right 8 8 ["send_queue"] |v| number(v.record.send_queue), put_send_queue,
        "Bytes that the peer has not acknowledged yet; of a listener, its backlog";
    "waiting" "WAITING" Right 8 7 ["receive_queue"] |v| number(v.record.receive_queue), put_waiting,
        "Of a listener: connections that wait to be accepted";
    "backlog" "BACKLOG" Right 8 7 ["send_queue"] |v| number(v.record.send_queue),
        |v, out| put_or_dash(v.record.send_queue, out, |number| number.to_string()),
        "Of a listener: how many may wait";
    "rtt" "RTT" Right 7 7 ["rtt_us"] |v| number(v.record.rtt_us.filter(|&us| us > 0)),
        |v, out| put_or_dash(v.record.rtt_us.filter(|&us| us > 0), out, |us| short_time(us.into())),
        "Smoothed round-trip time";
    "min_rtt" "MIN-RTT" Right 3 7 ["min_rtt_us"] |v| number(min_rtt(v)),
        |v, out| put_or_dash(min_rtt(v), out, |us| short_time(us.into())),
        "Smallest round-trip time in the kernel's window of 5 minutes";
    "cwnd" "CWND" Right 4 5 ["snd_cwnd_segments"] |v| number(cwnd(v)),
        |v, out| put_or_dash(cwnd(v), out, |number| number.to_string()),
        "Congestion window, in segments";
    "retrans" "RETRANS" Right 7 7 ["retrans_segments", "total_retrans_segments"]
        |v| number(v.record.total_retrans_segments), put_retrans,
        "Retransmitted segments: in flight now / in all";
    "rate" "RATE" Right 5 11 ["delivery_rate_bytes_per_sec"] |v| number(delivery_rate(v)),
        |v, out| put_or_dash(delivery_rate(v), out, |rate| byte_rate(rate as f64)),
        "Rate at which data was last delivered, as the kernel measured it";
    "pacing" "PACING" Right 3 11 ["pacing_rate_bytes_per_sec"] |v| number(pacing_rate(v)),
        |v, out| put_or_dash(pacing_rate(v), out, |rate| byte_rate(rate as f64)),
        "Rate that the sender is paced at";
    "limited" "LIMITED" Left 4 11 ["busy_time_us", "rwnd_limited_us", "sndbuf_limited_us", "delivery_rate_app_limited"]
        limit_key, put_limited,
        "What held sending up: rwnd (the peer's window) or sndbuf (our buffer) with the share of the busy time, app (too little to send), path (the congestion window)";
    "idle" "IDLE" Right 2 7 ["last_data_sent_ms", "last_data_recv_ms"] |v| number(idle_ms(v)),
        |v, out| put_or_dash(idle_ms(v), out, |ms| short_time(u64::from(ms) * 1_000)),
        "Time since data was last sent or received";
    "cc" "CC" Left 3 8 ["congestion_algorithm"] |v| text_key(v.record.congestion_algorithm),
        |v, out| put_or_dash(v.record.congestion_algorithm, out, escaped),
        "Congestion control";
    "mss" "MSS" Right 3 5 ["snd_mss_bytes"] |v| number(v.record.snd_mss_bytes),
        |v, out| put_or_dash(v.record.snd_mss_bytes, out, |number| number.to_string()),
        "Largest segment that is sent, in bytes";
    "ssthresh" "SSTHRESH" Right 3 8 ["snd_ssthresh_segments"] |v| number(ssthresh(v)),
        |v, out| put_or_dash(ssthresh(v), out, |number| number.to_string()),
        "Slow start ends at this congestion window, in segments; - before the first loss";
    "rto" "RTO" Right 3 7 ["rto_us"] |v| number(v.record.rto_us),
        |v, out| put_or_dash(v.record.rto_us, out, |us| short_time(us.into())),
        "Retransmission timeout";
    "unacked" "UNACKED" Right 3 7 ["unacked_segments"] |v| number(unacked(v)),
        |v, out| put_or_dash(unacked(v), out, |number| number.to_string()),
        "Segments sent and not acknowledged yet";
    "rmem" "RMEM" Right 5 8 ["rmem_alloc_bytes"] |v| number(v.record.rmem_alloc_bytes),
        |v, out| put_or_dash(v.record.rmem_alloc_bytes, out, |size| bytes(size.into())),
        "Memory of what was received and not read, with the kernel's overhead";
    "rcvbuf" "RCVBUF" Right 5 8 ["rcvbuf_bytes"] |v| number(v.record.rcvbuf_bytes),
        |v, out| put_or_dash(v.record.rcvbuf_bytes, out, |size| bytes(size.into())),
        "Limit of that memory: the receive buffer";
    "wmem" "WMEM" Right 3 8 ["wmem_queued_bytes"] |v| number(v.record.wmem_queued_bytes),
        |v, out| put_or_dash(v.record.wmem_queued_bytes, out, |size| bytes(size.into())),
        "Memory of what waits to be sent or acknowledged, with the kernel's overhead";
    "sndbuf" "SNDBUF" Right 3 8 ["sndbuf_bytes"] |v| number(v.record.sndbuf_bytes),
        |v, out| put_or_dash(v.record.sndbuf_bytes, out, |size| bytes(size.into())),
        "Limit of that memory: the send buffer";
    "drops" "DROPS" Right 9 7 ["drops"] |v| number(v.record.drops), put_drops,
        "Packets that this socket has dropped so far";
    "drops/s" "DROPS/S" Right 9 7 ["drops"] drop_rate_key, put_drop_rate,
        "Packets that this socket drops per second, between two polls";
    "sent" "SENT" Right 6 8 ["bytes_sent"] |v| number(v.record.bytes_sent.or(v.record.bytes_acked)),
        |v, out| put_or_dash(v.record.bytes_sent.or(v.record.bytes_acked), out, bytes),
        "Bytes sent so far, retransmissions included";
    "received" "RECEIVED" Right 6 8 ["bytes_received"] |v| number(v.record.bytes_received),
        |v, out| put_or_dash(v.record.bytes_received, out, bytes),
        "Bytes received so far";
    "out" "OUT" Right 9 11 ["bytes_sent"] |v| rate_key(v, |rates| rates.sent_bytes),
        |v, out| put_or_dash(v.moved.rates, out, |rates| byte_rate(rates.sent_bytes)),
        "With --watch: bytes sent per second since the last poll";
    "in" "IN" Right 9 11 ["bytes_received"] |v| rate_key(v, |rates| rates.received_bytes),
        |v, out| put_or_dash(v.moved.rates, out, |rates| byte_rate(rates.received_bytes)),
        "With --watch: bytes received per second";
    "retrans/s" "RETRANS/S" Right 7 9 ["total_retrans_segments"] |v| rate_key(v, |rates| rates.retrans_segments),
        put_retrans_rate, "With --watch: segments retransmitted per second";
    "segs_out/s" "SEGS-OUT" Right 4 8 ["segs_out"] |v| rate_key(v, |rates| rates.segs_out),
        |v, out| put_or_dash(v.moved.rates, out, |rates| event_rate(rates.segs_out)),
        "With --watch: segments sent per second";
    "segs_in/s" "SEGS-IN" Right 4 8 ["segs_in"] |v| rate_key(v, |rates| rates.segs_in),
        |v, out| put_or_dash(v.moved.rates, out, |rates| event_rate(rates.segs_in)),
        "With --watch: segments received per second";
    "age" "AGE" Right 3 7 [] |v| number(age_ms(v)),
        |v, out| put_or_dash(age_ms(v), out, |ms| short_time(ms * 1_000)),
        "With --watch: for how long it has been seen";
    "namespace" "NAMESPACE" Left 11 16 ["netns_name", "netns_inode"] namespace_key, put_namespace,
        "Network namespace: its name, or else its inode as in /proc/PID/ns/net";
    "process" "PROCESS" Left 10 20 ["process_id", "process_name"] |v| number(v.record.process_id), put_process,
        "With --processes: a process that holds it, and how many more do; with --closed, the one that a poll last found";
    "user" "USER" Left 4 8 ["uid"] |v| number(v.record.uid), put_user,
        "Owner of the socket";
    "unit" "UNIT" Left 4 24 ["systemd_unit"] |v| text_key(v.record.systemd_unit),
        |v, out| put_or_dash(v.record.systemd_unit, out, escaped),
        "systemd unit";
    "pod" "POD" Left 4 36 ["pod_uid"] |v| text_key(v.record.pod_uid),
        |v, out| put_or_dash(v.record.pod_uid, out, escaped),
        "Uid of the Kubernetes pod";
    "container" "CONTAINER" Left 4 12 ["container_id"] |v| text_key(v.record.container_id),
        |v, out| put_or_dash(v.record.container_id, out, |id| escaped(short(id))),
        "Container: the first 12 characters of its id";
    "host" "HOST" Left 9 16 ["host"] |v| text_key(v.record.host),
        |v, out| put_or_dash(v.record.host, out, escaped),
        "Name of the host";
    "time" "TIME (UTC)" Left 5 12 ["time_unix_ns"] |v| number(v.record.time_unix_ns),
        |v, out| put_or_dash(v.record.time_unix_ns, out, time_of_day),
        "When it was seen, or closed";
    "ended" "ENDED" Left 9 11 ["close_reason"] |v| number(v.record.close_reason.map(|reason| reason.0)), put_ended,
        "With --closed: how the connection ended";
    "seen" "SEEN" Right 5 7 ["seen_ns"] |v| number(v.record.seen_ns),
        |v, out| put_or_dash(v.record.seen_ns, out, |ns| short_time(ns / 1_000)),
        "With --closed: from the first poll that saw it to its end; absent for a connection that none saw";
}

/// The column of this name.
pub(super) fn find(name: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|column| column.name == name)
}
