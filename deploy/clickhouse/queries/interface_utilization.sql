-- How full interfaces were in the last hour, by the counters that agents send: the average, and the fullest time between two counter
-- samples. A lost datagram loses no counts: the next counters include what was in between. What is lost in an agent's restart is left out.
--
-- `percent` is NULL if the agent does not report the interface's speed.

SELECT
    host,
    replaceOne(toString(agent), '::ffff:', '') AS agent_address,
    if_index,
    nullIf(argMax(speed_bits_per_sec, time), 0) / 1e6 AS speed_mbit_per_sec,
    round(sum(in_octets_delta) * 8 / sum(interval_ms) / 1e3, 3) AS in_mbit_per_sec,
    round(100 * in_mbit_per_sec / speed_mbit_per_sec, 2) AS in_percent,
    round(max(in_bits_per_sec) / 1e4 / speed_mbit_per_sec, 2) AS in_percent_max,
    round(sum(out_octets_delta) * 8 / sum(interval_ms) / 1e3, 3) AS out_mbit_per_sec,
    round(100 * out_mbit_per_sec / speed_mbit_per_sec, 2) AS out_percent,
    round(max(out_bits_per_sec) / 1e4 / speed_mbit_per_sec, 2) AS out_percent_max,
    sum(ifNull(in_errors_delta, 0) + ifNull(out_errors_delta, 0)) AS errors,
    sum(ifNull(in_discards_delta, 0) + ifNull(out_discards_delta, 0)) AS discards,
    argMax(sampled_ratio_permille, time) AS sampled_permille
FROM counters
WHERE time >= now() - INTERVAL 1 HOUR AND subject = 1
GROUP BY host, agent, sub_agent, if_index
HAVING sum(interval_ms) > 0
ORDER BY greatest(ifNull(in_percent, 0), ifNull(out_percent, 0)) DESC, in_mbit_per_sec + out_mbit_per_sec DESC
LIMIT 1000;
