-- title: What was lost, where and why, most first
-- of: one machine
-- parameters: since until limit
-- column lost: datagrams or records
-- column lost_bytes: bytes
SELECT hop, origin, target, way, reason, sum(count) AS lost, sum(bytes) AS lost_bytes,
       min(time_unix_ns) AS first_unix_ns, max(time_unix_ns) AS last_unix_ns
FROM ledger
WHERE time_unix_ns >= {since} AND time_unix_ns < {until} AND way IN ('dropped', 'rejected', 'uncertain')
GROUP BY hop, origin, target, way, reason
ORDER BY lost DESC
LIMIT {limit}
