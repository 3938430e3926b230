//! The columns of the SQL table `sockets`.

use record::{Field, SocketRecord};
use std::sync::LazyLock;

/// At most 62: SQLite reports for each of the first 63 columns whether a statement uses it, but not beyond.
const NAMES: &[&str] = &[
    "time_unix_ns",
    "cookie",
    "record_kind",
    "poll",
    "sequence",
    "run_id",
    "src_address",
    "src_port",
    "dst_address",
    "dst_port",
    "role",
    "state",
    "ca_state",
    "receive_queue",
    "send_queue",
    "uid",
    "netns_inode",
    "netns_name",
    "systemd_unit",
    "container_id",
    "pod_uid",
    "cgroup_path",
    "process_id",
    "process_name",
    "congestion_algorithm",
    "rto_us",
    "rtt_us",
    "rttvar_us",
    "min_rtt_us",
    "rcv_rtt_us",
    "snd_mss_bytes",
    "snd_cwnd_segments",
    "snd_ssthresh_segments",
    "unacked_segments",
    "lost_segments",
    "total_retrans_segments",
    "bytes_sent",
    "bytes_acked",
    "bytes_received",
    "bytes_retrans",
    "segs_out",
    "segs_in",
    "delivery_rate_bytes_per_sec",
    "pacing_rate_bytes_per_sec",
    "notsent_bytes",
    "snd_wnd_bytes",
    "rcv_wnd_bytes",
    "rcv_ooopack",
    "drops",
    "busy_time_us",
    "rwnd_limited_us",
    "sndbuf_limited_us",
    "close_reason",
    "seen_ns",
    "first_seen_unix_ns",
    "since_ns",
    "bytes_sent_delta",
    "bytes_received_delta",
    "bytes_retrans_delta",
    "segs_out_delta",
    "total_retrans_segments_delta",
    "delivered_segments",
];

/// The positions of the two columns that bounds can use to skip rows.
pub(crate) const TIME_COLUMN: usize = 0;
pub(crate) const COOKIE_COLUMN: usize = 1;

/// The fields of records that are columns of `sockets`, in order. A Parquet file has all fields.
pub fn socket_columns() -> &'static [&'static Field] {
    static COLUMNS: LazyLock<Vec<&'static Field>> = LazyLock::new(|| fields(NAMES));
    &COLUMNS
}

/// The fields of these names.
pub(crate) fn fields(names: &[&str]) -> Vec<&'static Field> {
    let find = |name: &&str| SocketRecord::FIELDS.iter().find(|field| field.name == *name);
    names.iter().filter_map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_a_field_and_there_are_not_too_many() {
        assert_eq!(socket_columns().len(), NAMES.len());
        assert!(NAMES.len() <= 62);
        assert_eq!(NAMES[TIME_COLUMN], "time_unix_ns");
        assert_eq!(NAMES[COOKIE_COLUMN], "cookie");
    }
}
