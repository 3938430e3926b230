-- title: The connections that ended last, and how
-- parameters: since until limit
SELECT {host} time_unix_ns, close_reason, src_address, src_port, dst_address, dst_port, role, last_state, seen_ns, rtt_us, min_rtt_us,
       total_retrans_segments, bytes_sent, bytes_received, bytes_retrans, systemd_unit, container_id, process_name, process_id, netns_inode,
       netns_name, cookie, counters_from
FROM {closes}
WHERE time_unix_ns >= {since} AND time_unix_ns < {until}
ORDER BY time_unix_ns DESC, {host} cookie
LIMIT {limit}
