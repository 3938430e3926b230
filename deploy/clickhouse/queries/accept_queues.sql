-- Listeners that do not accept fast enough: how full their queues were in the last hour, and how many connections they dropped.
--
-- `limit` is the smaller of what the program asked for (listen) and net.core.somaxconn. The kernel admits one more than that.
-- `dropped` counts for as long as the listener lives, `dropped_in_window` between its first and last record of this hour.

SELECT
    host,
    any(netns_name) AS namespace,
    replaceOne(toString(any(src_address)), '::ffff:', '') AS address,
    any(src_port) AS port,
    any(systemd_unit) AS unit,
    max(receive_queue) AS fullest,
    argMax(send_queue, time) AS limit,
    countIf(receive_queue > send_queue) AS polls_full,
    count() AS polls,
    max(drops) AS dropped,
    max(drops) - min(drops) AS dropped_in_window
FROM sockets
WHERE time >= now() - INTERVAL 1 HOUR AND record_kind_word = 'poll' AND state_word = 'listen'
GROUP BY host, boot_id, cookie
HAVING polls_full > 0 OR dropped > 0
ORDER BY dropped_in_window DESC, polls_full DESC, dropped DESC
LIMIT 50;
