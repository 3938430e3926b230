-- Whose data has to be sent again: the share of bytes that were retransmitted in the last hour, by host, pod, container and unit.

SELECT
    host,
    pod_uid,
    container_id,
    systemd_unit,
    sum(bytes_sent) AS sent,
    sum(bytes_retrans) AS retransmitted,
    sum(retrans_segments) AS segments,
    round(100 * retransmitted / sent, 3) AS percent
FROM sockets_by_minute
WHERE minute >= now() - INTERVAL 1 HOUR
GROUP BY host, pod_uid, container_id, systemd_unit
HAVING sent > 0
ORDER BY percent DESC, retransmitted DESC, host, pod_uid, container_id, systemd_unit
LIMIT 50;
