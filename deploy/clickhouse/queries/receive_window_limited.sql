-- Connections on which the peer reads too slowly: we had something to send, and its receive window was full. The last hour.
--
-- `percent` is of the time in which there was something to send. The cause is the program at the peer, or its receive buffer
-- (net.ipv4.tcp_rmem there), not the network.

SELECT
    any(host) AS host,
    concat(replaceOne(toString(any(src_address)), '::ffff:', ''), ' ', toString(any(src_port))) AS local,
    concat(replaceOne(toString(any(dst_address)), '::ffff:', ''), ' ', toString(any(dst_port))) AS peer,
    any(role_word) AS role,
    round(sum(rwnd_limited_us_delta) / 1e6, 3) AS limited_s,
    round(100 * sum(rwnd_limited_us_delta) / sum(busy_time_us_delta), 1) AS percent,
    argMax(snd_wnd_bytes, time) AS last_window_bytes,
    argMax(send_queue, time) AS last_send_queue_bytes
FROM sockets
WHERE time >= now() - INTERVAL 1 HOUR AND busy_time_us_delta > 0
GROUP BY boot_id, cookie
HAVING limited_s >= 0.1 AND percent >= 10
ORDER BY limited_s DESC
LIMIT 50;
