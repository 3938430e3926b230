-- title: Which flows carried most
-- parameters: since until limit
-- column total_bytes: bytes
-- column total_bytes_low: bytes
-- column total_bytes_high: bytes
-- column total_frames: frames
-- column total_samples: samples
SELECT {host} definition, key, sum(bytes) AS total_bytes, sum(bytes_low) AS total_bytes_low, sum(bytes_high) AS total_bytes_high,
       sum(frames) AS total_frames, sum(samples) AS total_samples, sum(merged_flows) AS merged
FROM {flows}
WHERE time_unix_ns >= {since} AND time_unix_ns < {until} AND coalesce(traffic, '') <> 'dropped'
GROUP BY {host} definition, key
ORDER BY total_bytes DESC, {host} definition, key
LIMIT {limit}
