-- Who moves most: bytes of the last hour by host, workload, service and peer.
--
-- `sent` includes `sent_again`. Both ends of a connection are here if both hosts are collected: look at one `role`, or the sum is twice
-- what the network had.

SELECT
    host,
    multiIf(container_id != '', container_id, systemd_unit != '', systemd_unit, pod_uid) AS workload,
    transform(role, [1, 2], ['opener', 'acceptor'], '') AS role,
    replaceOne(toString(peer), '::ffff:', '') AS peer,
    service_port,
    sum(bytes_sent) AS sent,
    sum(bytes_retrans) AS sent_again,
    sum(bytes_received) AS received
FROM sockets_by_minute
WHERE minute >= now() - INTERVAL 1 HOUR
GROUP BY ALL
HAVING sent + received > 0
ORDER BY sent + received DESC, host, workload, role, peer, service_port
LIMIT 50;
