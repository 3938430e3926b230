-- title: How many round-trip times were how long, over time
-- parameters: since until
-- column bucket_unix_ns: ns
-- column width_ns: ns
-- column low_us: µs
-- column high_us: µs
-- column samples: samples
WITH RECURSIVE
bands (low_us, high_us) AS (
    SELECT 0, 64
    UNION ALL
    SELECT high_us, CASE WHEN high_us & (high_us - 1) = 0 THEN high_us / 2 * 3 ELSE high_us / 3 * 4 END
    FROM bands
    WHERE high_us < 33554432
),
spans AS (
    SELECT time_unix_ns / {span} * {span} AS bucket_unix_ns, sketch_merge(rtt) AS rtts
    FROM {rollup}
    WHERE dimension = 'all' AND time_unix_ns >= {first} AND time_unix_ns < {until}
    GROUP BY bucket_unix_ns
)
SELECT bucket_unix_ns, {span} AS width_ns, low_us, high_us, sketch_between(rtts, low_us, high_us) AS samples
FROM spans CROSS JOIN bands
WHERE sketch_between(rtts, low_us, high_us) > 0
ORDER BY bucket_unix_ns, low_us
