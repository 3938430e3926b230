-- Which services are called with a new connection each time: connections of the last hour that lived for less than ten seconds, by service
-- port, and how they ended.
--
-- A connection that is opened for each request costs a handshake, a port for a minute, and starts with a small window.

SELECT
    transform(ifNull(role, 0), [1, 2], ['opener', 'acceptor'], '') AS end,
    multiIf(role = 2, src_port, role = 1 OR dst_port IS NULL, dst_port, least(src_port, dst_port)) AS service_port,
    close_reason_word AS ended,
    count() AS connections,
    uniqExact(host) AS hosts,
    -- Includes what was sent again. Absent for an abort that no poll had seen.
    sum(bytes_sent) AS sent,
    sum(bytes_retrans) AS sent_again,
    sum(bytes_received) AS received
FROM sockets
-- No poll saw it, or only a short time passed since the first one that did.
WHERE time >= now() - INTERVAL 1 HOUR AND record_kind_word = 'close' AND (polls_seen = 0 OR seen_ns < 10e9)
GROUP BY end, service_port, ended
ORDER BY connections DESC
LIMIT 50;
