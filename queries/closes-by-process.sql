-- title: How the connections of each process ended
-- parameters: since until limit
-- column closed: connections
SELECT {host} process_name, coalesce(systemd_unit, container_id) AS unit, close_reason, count(*) AS closed
FROM {closes}
WHERE time_unix_ns >= {since} AND time_unix_ns < {until}
GROUP BY {host} process_name, unit, close_reason
ORDER BY closed DESC, {host} process_name NULLS LAST, unit NULLS LAST, close_reason NULLS LAST
LIMIT {limit}
