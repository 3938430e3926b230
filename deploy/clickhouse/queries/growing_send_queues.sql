-- Connections that cannot get rid of their data: the send queue grew over the last 15 minutes.
--
-- `acked` is what the peer acknowledged in that time. If it is 0, the peer hangs or the path is dead: look at `last_timer`.

SELECT
    any(host) AS host,
    concat(replaceOne(toString(any(src_address)), '::ffff:', ''), ' ', toString(any(src_port))) AS local,
    concat(replaceOne(toString(any(dst_address)), '::ffff:', ''), ' ', toString(any(dst_port))) AS peer,
    count() AS polls,
    argMin(send_queue, time) AS first_bytes,
    argMax(send_queue, time) AS last_bytes,
    round(tupleElement(simpleLinearRegression(toFloat64(time_unix_ns - 1.7e18) / 1e9, send_queue), 1), 1) AS bytes_per_sec,
    sum(bytes_acked_delta) AS acked,
    argMax(timer_word, time) AS last_timer
FROM sockets
WHERE time >= now() - INTERVAL 15 MINUTE AND record_kind_word = 'poll' AND state_word = 'established' AND send_queue IS NOT NULL
GROUP BY boot_id, cookie
HAVING polls >= 3 AND last_bytes > first_bytes AND bytes_per_sec > 0
ORDER BY last_bytes DESC
LIMIT 50;
