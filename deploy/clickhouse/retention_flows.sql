-- How long rows of sFlow are kept; run it behind flows.sql and rollup_flows.sql, with your own numbers. retention.sql says how old rows go.

ALTER TABLE flows MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE flows MODIFY TTL ingest_time + INTERVAL 30 DAY;

ALTER TABLE counters MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE counters MODIFY TTL ingest_time + INTERVAL 30 DAY;

-- Totals prove that flows and counters are complete: no use without them, and small.
ALTER TABLE flow_totals MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE flow_totals MODIFY TTL ingest_time + INTERVAL 30 DAY;

-- Minutes outlive what they were made of.
ALTER TABLE flows_by_minute MODIFY SETTING ttl_only_drop_parts = 1;
ALTER TABLE flows_by_minute MODIFY TTL minute + INTERVAL 400 DAY;
