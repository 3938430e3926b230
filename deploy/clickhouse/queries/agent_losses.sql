-- How many of the agents' datagrams did not arrive, by agent: the latest figures of each run of a collector in the last day, added up. Flows are
-- corrected for it; their intervals are wider.

SELECT
    host,
    replaceOne(toString(agent), '::ffff:', '') AS agent_address,
    sum(received) AS datagrams_received,
    sum(lost) AS datagrams_lost,
    round(100 * datagrams_lost / (datagrams_received + datagrams_lost), 2) AS percent,
    sum(agent_dropped) AS samples_dropped_by_agent,
    sum(unattributed) AS frames_of_no_flow
FROM
(
    SELECT
        host, run_id, agent, sub_agent,
        ifNull(argMax(counters.datagrams_received, time), 0) AS received,
        ifNull(argMax(counters.datagrams_lost, time), 0) AS lost,
        ifNull(argMax(samples_agent_dropped, time), 0) AS agent_dropped,
        ifNull(argMax(unattributed_frames, time), 0) AS unattributed
    FROM counters
    WHERE time >= now() - INTERVAL 1 DAY AND subject = 2
    GROUP BY host, run_id, agent, sub_agent
)
GROUP BY host, agent
ORDER BY datagrams_lost DESC, host, agent
LIMIT 1000;
