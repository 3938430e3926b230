-- Who sends most: datagrams and bytes of the last hour by listener and sender.
--
-- `unparsed` are those that are no syslog, where the listener reads them as that.

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
