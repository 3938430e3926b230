-- title: Which peers have the longest round-trip times
-- parameters: since until limit
-- column rtt_p50_us: µs
-- column rtt_p99_us: µs
-- column samples: samples
-- column sent_bytes: bytes
-- column retransmitted_bytes: bytes
-- column retransmitted_share: of bytes sent
-- column peer_window_share: of the time with data to send
-- column send_buffer_share: of the time with data to send
SELECT peer, sketch_quantile(sketch_merge(rtt), 0.5) AS rtt_p50_us, sketch_quantile(sketch_merge(rtt), 0.99) AS rtt_p99_us,
       sketch_count(sketch_merge(rtt)) AS samples, sum(bytes_sent) AS sent_bytes, sum(bytes_retrans) AS retransmitted_bytes,
       sum(bytes_retrans) * 1.0 / nullif(sum(bytes_sent), 0) AS retransmitted_share,
       sum(rwnd_limited_us) * 1.0 / nullif(sum(busy_time_us), 0) AS peer_window_share,
       sum(sndbuf_limited_us) * 1.0 / nullif(sum(busy_time_us), 0) AS send_buffer_share,
       sum(zero_windows) AS without_window, sum(closes) AS closed, sum(aborts) AS aborted
FROM {rollup}
WHERE dimension = 'peer' AND time_unix_ns >= {first} AND time_unix_ns < {until}
GROUP BY peer
ORDER BY rtt_p99_us DESC NULLS LAST
LIMIT {limit}
