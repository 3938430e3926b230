-- What the collectors missed and counted, by host, in the last day: closes that did not fit into the kernel's buffer, connections
-- that vanished without an event, namespaces that failed. No row means that none of it happened.
--
-- complete.sql answers the other half: whether everything that they made is here.

SELECT
    host,
    sum(closes_dropped_event_buffer) AS closes_lost,
    sum(closes_unobserved) AS closes_unobserved,
    sum(connections_unheard) AS closes_in_new_namespaces,
    sum(sockets_dropped_decode_failed) + sum(closes_dropped_decode_failed) AS undecodable,
    sum(sockets_dropped_other) + sum(closes_dropped_other) AS dropped_otherwise,
    sum(namespaces_failed) AS namespaces_failed,
    max(namespaces_left_out) AS namespaces_left_out,
    sum(table_evicted) AS evicted
FROM polls
WHERE time >= now() - INTERVAL 1 DAY
GROUP BY host
HAVING closes_lost + closes_unobserved + closes_in_new_namespaces + undecodable + dropped_otherwise + namespaces_failed
    + namespaces_left_out + evicted > 0
ORDER BY closes_lost + closes_unobserved + dropped_otherwise DESC
LIMIT 1000;
