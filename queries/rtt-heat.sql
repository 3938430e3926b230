-- title: How many round-trip times were how long, over time
-- shows: sums
-- parameters: since until
-- column bucket_unix_ns: ns
-- column width_ns: ns
-- column low_us: µs
-- column high_us: µs
-- column samples: samples
WITH RECURSIVE
-- Two bands per octave, from 64 µs to 34 s: each edge is twice the one before the last.
bands (low_us, high_us, next_us) AS (
    SELECT CAST(0 AS BIGINT), CAST(64 AS BIGINT), CAST(96 AS BIGINT)
    UNION ALL
    SELECT high_us, next_us, high_us * 2
    FROM bands
    WHERE high_us < 33554432
),
spans AS (
    SELECT time_unix_ns - time_unix_ns % {span} AS bucket_unix_ns, {merged rtt} AS rtts
    FROM {sums all}
    GROUP BY bucket_unix_ns
)
SELECT bucket_unix_ns, {span} AS width_ns, low_us, high_us, {between rtts low_us high_us} AS samples
FROM spans CROSS JOIN bands
WHERE {between rtts low_us high_us} > 0
ORDER BY bucket_unix_ns, low_us
