-- How long rows are kept; run it after sockets.sql, datagrams.sql and rollup.sql, with your own numbers. docs/fleet.md says what a day takes.
--
-- Partitions are days of the insert, so old rows are deleted as whole parts, without rewriting any.

ALTER TABLE sockets MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE sockets MODIFY TTL ingest_time + INTERVAL 30 DAY;

ALTER TABLE datagrams MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE datagrams MODIFY TTL ingest_time + INTERVAL 30 DAY;

-- Totals prove that records are complete: records are useless without them, and they are small.
ALTER TABLE polls MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE polls MODIFY TTL ingest_time + INTERVAL 30 DAY;

-- Minutes outlive what they were made of.
ALTER TABLE sockets_by_minute MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE sockets_by_minute MODIFY TTL minute + INTERVAL 400 DAY;
