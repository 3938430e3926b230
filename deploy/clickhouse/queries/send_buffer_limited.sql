-- Connections that our own send buffer slows down: both the program and the network could have gone faster. The last hour.
--
-- A larger buffer helps: net.ipv4.tcp_wmem, or no SO_SNDBUF in the program, which turns the kernel's own tuning off.

SELECT
    any(host) AS host,
    concat(replaceOne(toString(any(src_address)), '::ffff:', ''), ' ', toString(any(src_port))) AS local,
    concat(replaceOne(toString(any(dst_address)), '::ffff:', ''), ' ', toString(any(dst_port))) AS peer,
    any(role_word) AS role,
    round(sum(sndbuf_limited_us_delta) / 1e6, 3) AS limited_s,
    round(100 * sum(sndbuf_limited_us_delta) / sum(busy_time_us_delta), 1) AS percent,
    argMax(sndbuf_bytes, time) AS send_buffer_bytes
FROM sockets
WHERE time >= now() - INTERVAL 1 HOUR AND busy_time_us_delta > 0
GROUP BY boot_id, cookie
HAVING limited_s >= 0.1 AND percent >= 10
ORDER BY limited_s DESC
LIMIT 50;
