-- What every minute added, from the rows of flows as they are inserted: bytes and frames by definition, source, destination, protocol and
-- port, with what makes their intervals. Run it after flows.sql; it counts what is inserted from then on.
--
-- The rows of one minute come from many inserts, and are added up when parts merge: query with sum() and GROUP BY. A row belongs to the
-- minute in which it ends, and covers at most `export_every` before that.
--
-- Intervals do not add up, variances do. A row's ends lie so that (value - low) × (high - value) is its variance times z² (z = 1.96), with
-- Wilson's interval as well as with a plain one. `bytes_spread` is the sum of that. Of a sum of rows the 95 % interval is, as Wilson's,
--
--   bytes + c - sqrt(spread + c²)   to   bytes + c + sqrt(spread + c²)     where c = spread / (2 × bytes)
--
-- queries/top_flows.sql does this.

CREATE TABLE IF NOT EXISTS flows_by_minute
(
    `minute` DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    `host` LowCardinality(String) CODEC(ZSTD(1)),
    -- Sampler numbers are valid for one run only.
    `run_id` UInt64 CODEC(ZSTD(1)),
    `definition` LowCardinality(String) CODEC(ZSTD(1)),
    -- 1 frames that passed, 2 frames that were dropped.
    `traffic` UInt8 CODEC(ZSTD(1)),
    -- With the aggregation `max` each sampler that saw a flow has rows of it, and the one with the largest sum counts; -1 with the others.
    `sampler` Int64 CODEC(ZSTD(1)),
    -- What the key of the definition does not have is `::`, 0 or empty; so is all of it in rows of flows that were merged.
    `src` IPv6 CODEC(ZSTD(1)),
    `dst` IPv6 CODEC(ZSTD(1)),
    `protocol` UInt8 CODEC(ZSTD(1)),
    `dst_port` UInt16 CODEC(ZSTD(1)),
    `src_group` LowCardinality(String) CODEC(ZSTD(1)),
    `dst_group` LowCardinality(String) CODEC(ZSTD(1)),

    `flow_rows` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `merged_flows` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `samples` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `bytes` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `bytes_spread` SimpleAggregateFunction(sum, Float64) CODEC(ZSTD(1)),
    `frames` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `frames_spread` SimpleAggregateFunction(sum, Float64) CODEC(ZSTD(1)),
    -- As other collectors calculate it: too low by what was lost.
    `raw_bytes` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (minute, definition, traffic, host, run_id, sampler, src, dst, protocol, dst_port, src_group, dst_group);

CREATE MATERIALIZED VIEW IF NOT EXISTS flows_to_minutes TO flows_by_minute AS
WITH (value, low, high) -> toFloat64(greatest(value - low, 0)) * toFloat64(greatest(high - value, 0)) AS spread
SELECT
    toStartOfMinute(toDateTime(ifNull(flows.`end`, flows.time), 'UTC')) AS minute,
    host,
    ifNull(flows.run_id, 0) AS run_id,
    definition,
    ifNull(flows.traffic, 0) AS traffic,
    ifNull(toInt64(flows.sampler), -1) AS sampler,
    ifNull(src_address, toIPv6('::')) AS src,
    ifNull(dst_address, toIPv6('::')) AS dst,
    ifNull(flows.protocol, 0) AS protocol,
    ifNull(flows.dst_port, 0) AS dst_port,
    ifNull(flows.src_group, '') AS src_group,
    ifNull(flows.dst_group, '') AS dst_group,
    count() AS flow_rows,
    sum(ifNull(flows.merged_flows, 0)) AS merged_flows,
    sum(ifNull(flows.samples, 0)) AS samples,
    sum(ifNull(flows.bytes, 0)) AS bytes,
    sum(ifNull(spread(toInt64(flows.bytes), toInt64(flows.bytes_low), toInt64(flows.bytes_high)), 0)) AS bytes_spread,
    sum(ifNull(flows.frames, 0)) AS frames,
    sum(ifNull(spread(toInt64(flows.frames), toInt64(flows.frames_low), toInt64(flows.frames_high)), 0)) AS frames_spread,
    sum(ifNull(flows.raw_bytes, 0)) AS raw_bytes
FROM flows
GROUP BY minute, host, run_id, definition, traffic, sampler, src, dst, protocol, dst_port, src_group, dst_group;
