-- title: What thresholds raised and cleared, newest first
-- of: one machine
-- parameters: since until limit
SELECT time_unix_ns, raised_id, change, threshold, subject, "text"
FROM events
WHERE time_unix_ns >= {since} AND time_unix_ns < {until}
ORDER BY time_unix_ns DESC
LIMIT {limit}
