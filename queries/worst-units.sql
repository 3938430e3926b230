-- title: Which units have the longest round-trip times
-- parameters: since until limit
-- column rtt_p50_us: µs
-- column rtt_p99_us: µs
-- column samples: samples
-- column sent_bytes: bytes
-- column retransmitted_bytes: bytes
-- column retransmitted_share: of bytes sent
-- column peer_window_share: of the time with data to send
-- column send_buffer_share: of the time with data to send
SELECT {host} unit, {p50 rtt} AS rtt_p50_us, {p99 rtt} AS rtt_p99_us, {samples rtt} AS samples,
       sum(bytes_sent) AS sent_bytes, sum(bytes_retrans) AS retransmitted_bytes,
       sum(bytes_retrans) * 1.0 / nullif(sum(bytes_sent), 0) AS retransmitted_share,
       sum(rwnd_limited_us) * 1.0 / nullif(sum(busy_time_us), 0) AS peer_window_share,
       sum(sndbuf_limited_us) * 1.0 / nullif(sum(busy_time_us), 0) AS send_buffer_share,
       sum(zero_windows) AS without_window, sum(closes) AS closed, sum(aborts) AS aborted
FROM {sums unit}
GROUP BY {host} unit
ORDER BY rtt_p99_us DESC NULLS LAST, {host} unit
LIMIT {limit}
