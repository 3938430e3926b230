-- title: One connection over its life: round-trip time, window, retransmissions, what held it up, newest first
-- parameters: since until limit cookie namespace
SELECT {host} time_unix_ns, record_kind, state, src_address, src_port, dst_address, dst_port, netns_inode, rtt_us, rttvar_us, min_rtt_us,
       snd_cwnd_segments, snd_ssthresh_segments, total_retrans_segments, total_retrans_segments_delta, bytes_sent, bytes_received,
       bytes_sent_delta, bytes_received_delta, bytes_retrans_delta, busy_time_us, rwnd_limited_us, sndbuf_limited_us,
       delivery_rate_bytes_per_sec, snd_wnd_bytes, send_queue, receive_queue, since_ns, close_reason
FROM {sockets}
WHERE cookie = {cookie} AND time_unix_ns >= {since} AND time_unix_ns < {until}
  AND ({namespace} = 0 OR netns_inode = {namespace})
ORDER BY {host} time_unix_ns DESC
LIMIT {limit}
