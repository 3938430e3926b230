-- title: What entered and left each hop, over time, newest first
-- of: one machine
-- parameters: since until
-- column bucket_unix_ns: ns
-- column width_ns: ns
-- column amount: datagrams or records
-- column amount_bytes: bytes
SELECT time_unix_ns - time_unix_ns % {bucket} AS bucket_unix_ns, {bucket} AS width_ns, hop, origin, target, way,
       sum(count) AS amount, sum(bytes) AS amount_bytes
FROM ledger
WHERE time_unix_ns >= {since} AND time_unix_ns < {until}
GROUP BY bucket_unix_ns, hop, origin, target, way
ORDER BY bucket_unix_ns DESC, hop, origin, target, way
