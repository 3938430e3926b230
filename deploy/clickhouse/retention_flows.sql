-- How long rows of sFlow are kept; run it after flows.sql and rollup_flows.sql, with your own numbers. retention.sql explains how old rows are deleted.

ALTER TABLE flows MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE flows MODIFY TTL ingest_time + INTERVAL 30 DAY;

ALTER TABLE counters MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE counters MODIFY TTL ingest_time + INTERVAL 30 DAY;

-- Totals prove that flows and counters are complete: rows are useless without them, and they are small.
ALTER TABLE flow_totals MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE flow_totals MODIFY TTL ingest_time + INTERVAL 30 DAY;

-- Minutes outlive what they were made of.
ALTER TABLE flows_by_minute MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE flows_by_minute MODIFY TTL minute + INTERVAL 400 DAY;
