-- Who calls whom: connections' openers, and the services that accepted them, with the traffic of the last hour.
--
-- The service is found by its address among the acceptors. Where no collected host has that address (a load balancer, another
-- company), `server` is empty. Loopback addresses are every host's own, and match on the same host only.

WITH
    now() - INTERVAL 1 HOUR AS since,
    (host, container, unit, pod) -> multiIf(container != '', container, unit != '', unit, pod != '', pod, host) AS workload_of
SELECT
    client.host AS client_host,
    client.workload AS client,
    replaceOne(toString(client.peer), '::ffff:', '') AS address,
    client.service_port AS port,
    server.name AS server_host,
    server.workload AS server,
    sum(client.sent) AS bytes_sent,
    sum(client.received) AS bytes_received,
    sum(client.closes) AS connections_closed
FROM
(
    SELECT host, workload_of(host, container_id, systemd_unit, pod_uid) AS workload, peer, service_port, sum(bytes_sent) AS sent,
        sum(bytes_received) AS received, sum(sockets_by_minute.closes) AS closes,
        if(peer = toIPv6('::1') OR isIPAddressInRange(toString(peer), '::ffff:127.0.0.0/104'), host, '') AS only_on
    FROM sockets_by_minute
    WHERE minute >= since AND role = 1
    GROUP BY ALL
) AS client
LEFT JOIN
(
    SELECT any(host) AS name, any(workload_of(host, container_id, systemd_unit, pod_uid)) AS workload, local, service_port,
        if(local = toIPv6('::1') OR isIPAddressInRange(toString(local), '::ffff:127.0.0.0/104'), host, '') AS only_on
    FROM sockets_by_minute
    WHERE minute >= since AND role = 2
    GROUP BY local, service_port, only_on
) AS server
ON server.local = client.peer AND server.service_port = client.service_port AND server.only_on = client.only_on
GROUP BY ALL
ORDER BY bytes_sent + bytes_received DESC, client_host, client, address, port
LIMIT 200;
