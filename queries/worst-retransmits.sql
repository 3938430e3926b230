-- title: Which processes sent most again, and to which peers
-- parameters: since until limit
-- column connections: connections
-- column retransmitted_bytes: bytes
-- column sent_bytes: bytes
-- column retransmitted_share: of bytes sent
-- column retransmitted_segments: segments
SELECT {host} process_name, coalesce(systemd_unit, container_id) AS unit, dst_address AS peer, count(DISTINCT cookie) AS connections,
       sum(bytes_retrans_delta) AS retransmitted_bytes, sum(bytes_sent_delta) AS sent_bytes,
       sum(bytes_retrans_delta) * 1.0 / nullif(sum(bytes_sent_delta), 0) AS retransmitted_share,
       sum(total_retrans_segments_delta) AS retransmitted_segments
FROM {sockets}
WHERE time_unix_ns >= {since} AND time_unix_ns < {until}
GROUP BY {host} process_name, unit, peer
HAVING sum(total_retrans_segments_delta) > 0
ORDER BY retransmitted_bytes DESC NULLS LAST, {host} process_name NULLS LAST, unit NULLS LAST, peer NULLS LAST
LIMIT {limit}
