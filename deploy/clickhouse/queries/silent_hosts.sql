-- Hosts that have reported nothing for ten minutes, among those that reported within a week. Every poll has totals, even one without
-- records, so the host is down, or Weir on it, or the path from there.

SELECT
    ifNull(host_id, host) AS id,
    argMax(host, time) AS name,
    max(time) AS last,
    dateDiff('second', last, now()) AS silent_s,
    argMax(interval_ms, time) / 1e3 AS interval_s,
    argMax(weir_version, time) AS weir
FROM polls
WHERE time >= now() - INTERVAL 7 DAY
GROUP BY id
HAVING last < now() - INTERVAL 10 MINUTE
ORDER BY last
LIMIT 1000;
