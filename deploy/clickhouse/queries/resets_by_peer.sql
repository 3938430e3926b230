-- Connections of the last hour that did not end well, by peer: reset by either end, refused, or timed out after retransmissions.
--
-- The kernel says less to the end that aborts: where no poll had seen the connection, the peer's port is not known, as it is of one that was
-- refused.

SELECT
    ifNull(replaceOne(toString(dst_address), '::ffff:', ''), '') AS peer,
    multiIf(role = 2, src_port, role = 1 OR dst_port IS NULL, dst_port, least(src_port, dst_port)) AS service_port,
    countIf(close_reason_word = 'our_reset') AS our_resets,
    countIf(close_reason_word = 'peer_reset') AS peer_resets,
    countIf(close_reason_word = 'refused') AS refused,
    countIf(close_reason_word = 'timed_out') AS timed_out,
    uniqExact(host) AS hosts,
    max(time) AS last
FROM sockets
WHERE time >= now() - INTERVAL 1 HOUR AND close_reason_word IN ('our_reset', 'peer_reset', 'refused', 'timed_out')
GROUP BY peer, service_port
ORDER BY our_resets + peer_resets + refused + timed_out DESC
LIMIT 50;
