-- Which peers are far away or slow: round-trip times of the last hour by the peer's address, the worst first.
--
-- `min_rtt_ms` is the path without queues. A p99 far above it means a queue on the path, or a peer that acknowledges late.

SELECT
    replaceOne(toString(dst_address), '::ffff:', '') AS peer,
    uniqExact(boot_id, cookie) AS connections,
    uniqExact(host) AS hosts,
    round(min(min_rtt_us) / 1e3, 3) AS min_rtt_ms,
    round(quantile(0.5)(rtt_us) / 1e3, 3) AS p50_rtt_ms,
    round(quantile(0.99)(rtt_us) / 1e3, 3) AS p99_rtt_ms
FROM sockets
-- 0 means no sample yet.
WHERE time >= now() - INTERVAL 1 HOUR AND record_kind_word = 'poll' AND state_word = 'established' AND rtt_us > 0
GROUP BY dst_address
ORDER BY p99_rtt_ms DESC
LIMIT 50;
