-- title: How connections ended, over time
-- shows: sums
-- parameters: since until
-- column bucket_unix_ns: ns
-- column width_ns: ns
-- column closed: connections
SELECT time_unix_ns - time_unix_ns % {span} AS bucket_unix_ns, {span} AS width_ns, close_reason, count(*) AS closed
FROM {closes}
WHERE time_unix_ns >= {since} AND time_unix_ns < {until}
GROUP BY bucket_unix_ns, close_reason
ORDER BY bucket_unix_ns, close_reason
