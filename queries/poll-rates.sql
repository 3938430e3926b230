-- title: What polls recorded, and what they lost, over time
-- parameters: since until
-- column bucket_unix_ns: ns
-- column width_ns: ns
-- column reporting: hosts
-- column made: records
-- column lost_sockets: sockets
-- column lost_closes: closes
-- column unobserved_closes: closes
SELECT time_unix_ns - time_unix_ns % {span} AS bucket_unix_ns, {span} AS width_ns, count(DISTINCT host) AS reporting,
       sum(coalesce(sockets_emitted, 0) + coalesce(closes_emitted, 0)) AS made,
       sum(coalesce(sockets_dropped_decode_failed, 0) + coalesce(sockets_dropped_other, 0)) AS lost_sockets,
       sum(coalesce(closes_dropped_event_buffer, 0) + coalesce(closes_dropped_decode_failed, 0)
           + coalesce(closes_dropped_other, 0)) AS lost_closes,
       sum(coalesce(closes_unobserved, 0) + coalesce(connections_unheard, 0)) AS unobserved_closes
FROM {polls}
WHERE time_unix_ns >= {since} AND time_unix_ns < {until}
GROUP BY bucket_unix_ns
ORDER BY bucket_unix_ns
