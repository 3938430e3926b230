-- Which congestion controls are in use, and what they deliver. The last hour.
--
-- The rate is taken where the network was the limit, not where the program sent too little to show it.

WITH delivery_rate_app_limited = false AND delivery_rate_bytes_per_sec > 0 AS is_bulk
SELECT
    congestion_algorithm,
    uniqExact(boot_id, cookie) AS connections,
    uniqExact(host) AS hosts,
    countIf(is_bulk) AS samples,
    round(quantileIf(0.5)(delivery_rate_bytes_per_sec, is_bulk) * 8 / 1e6, 3) AS p50_mbit_per_sec,
    round(quantileIf(0.9)(delivery_rate_bytes_per_sec, is_bulk) * 8 / 1e6, 3) AS p90_mbit_per_sec,
    round(quantile(0.5)(rtt_us) / 1e3, 3) AS p50_rtt_ms,
    round(100 * sum(bytes_retrans_delta) / sum(bytes_sent_delta), 3) AS retransmitted_percent
FROM sockets
WHERE time >= now() - INTERVAL 1 HOUR AND record_kind = 1 AND congestion_algorithm != '' AND state != 10
GROUP BY congestion_algorithm
ORDER BY connections DESC;
