-- Who sends most: datagrams and bytes of the last hour by listener and sender.
--
-- `unparsed` counts datagrams that are not syslog, if the listener parses them as syslog.

SELECT
    listener,
    replaceOne(toString(source_address), '::ffff:', '') AS sender,
    count() AS datagrams,
    sum(length(payload)) AS bytes,
    countIf(syslog_format_word = 'unparsed') AS unparsed,
    max(time) AS last
FROM datagrams
WHERE time >= now() - INTERVAL 1 HOUR
GROUP BY listener, source_address
ORDER BY datagrams DESC
LIMIT 50;
