-- title: Which frames the network dropped, where and why
-- parameters: since until limit
-- column total_frames: frames
-- column total_bytes: bytes
-- column total_samples: samples
SELECT {host} definition, key, drop_reason, agent_address, sum(frames) AS total_frames, sum(bytes) AS total_bytes,
       sum(samples) AS total_samples, min(begin_unix_ns) AS first_unix_ns, max(end_unix_ns) AS last_unix_ns
FROM {flows}
WHERE time_unix_ns >= {since} AND time_unix_ns < {until} AND traffic = 'dropped'
GROUP BY {host} definition, key, drop_reason, agent_address
ORDER BY total_frames DESC, {host} definition, key, drop_reason, agent_address
LIMIT {limit}
