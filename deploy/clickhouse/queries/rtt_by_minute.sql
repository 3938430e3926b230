-- How round-trip times changed: percentiles of the last hour by minute, over all records that have one.

SELECT
    minute,
    sum(records) AS records,
    round(quantilesTDigestMerge(0.5, 0.9, 0.99)(rtt_us)[1] / 1e3, 3) AS p50_rtt_ms,
    round(quantilesTDigestMerge(0.5, 0.9, 0.99)(rtt_us)[2] / 1e3, 3) AS p90_rtt_ms,
    round(quantilesTDigestMerge(0.5, 0.9, 0.99)(rtt_us)[3] / 1e3, 3) AS p99_rtt_ms
FROM sockets_by_minute
WHERE minute >= now() - INTERVAL 1 HOUR
GROUP BY minute
ORDER BY minute;
