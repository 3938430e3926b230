-- What every minute added, from the records as they are inserted: bytes, segments, retransmissions, time that was limited, closes and
-- round-trip times by host, workload, role, service and peer. Run it after sockets.sql; it counts what is inserted from then on.
--
-- The rows of one minute come from many inserts, and are added up when parts merge: query with sum() and GROUP BY.
--
-- A view sees one insert at a time, so everything here comes from the differences that the collector takes (`…_delta`), and from
-- closing records of connections that no poll had seen, whose counters cover their whole life. Two things are left out: what a connection
-- did before its first record, because that record does not say how old the connection is (at most one interval, if it began while the
-- collector ran); and what an aborted connection did after its last record, because the kernel cleared it. So sums are never too high,
-- unless a record was inserted twice.

CREATE TABLE IF NOT EXISTS sockets_by_minute
(
    `minute` DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    `host` LowCardinality(String) CODEC(ZSTD(1)),
    -- Whose socket it is; empty if the records do not say.
    `pod_uid` String CODEC(ZSTD(1)),
    `container_id` String CODEC(ZSTD(1)),
    `systemd_unit` LowCardinality(String) CODEC(ZSTD(1)),
    -- 0 not known, 1 opener, 2 acceptor.
    `role` UInt8 CODEC(ZSTD(1)),
    -- The acceptor's port; of a connection whose role is not known, the lower of both. 0: the kernel did not say, for example when it was refused.
    `service_port` UInt16 CODEC(ZSTD(1)),
    `local` IPv6 CODEC(ZSTD(1)),
    `peer` IPv6 CODEC(ZSTD(1)),

    `records` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `bytes_sent` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `bytes_acked` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `bytes_received` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `bytes_retrans` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `segs_out` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `segs_in` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `retrans_segments` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `busy_time_us` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `rwnd_limited_us` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `sndbuf_limited_us` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `closes` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `our_resets` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `peer_resets` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `refused` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    `timed_out` SimpleAggregateFunction(sum, UInt64) CODEC(ZSTD(1)),
    -- One sample for each record with a round-trip time.
    `rtt_us` AggregateFunction(quantilesTDigest(0.5, 0.9, 0.99), UInt32) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (minute, host, pod_uid, container_id, systemd_unit, role, service_port, local, peer);

CREATE MATERIALIZED VIEW IF NOT EXISTS sockets_to_minutes TO sockets_by_minute AS
WITH
    record_kind = 2 AND polls_seen = 0 AND counters_from = 1 AS is_whole,
    (delta, counter) -> ifNull(delta, if(is_whole, ifNull(counter, 0), 0)) AS added
SELECT
    toStartOfMinute(time) AS minute,
    host,
    ifNull(sockets.pod_uid, '') AS pod_uid,
    ifNull(sockets.container_id, '') AS container_id,
    ifNull(sockets.systemd_unit, '') AS systemd_unit,
    ifNull(sockets.role, 0) AS role,
    ifNull(multiIf(role = 2, src_port, role = 1 OR dst_port IS NULL, dst_port, least(src_port, dst_port)), 0) AS service_port,
    ifNull(src_address, toIPv6('::')) AS local,
    ifNull(dst_address, toIPv6('::')) AS peer,
    count() AS records,
    sum(added(bytes_sent_delta, sockets.bytes_sent)) AS bytes_sent,
    sum(added(bytes_acked_delta, sockets.bytes_acked)) AS bytes_acked,
    sum(added(bytes_received_delta, sockets.bytes_received)) AS bytes_received,
    sum(added(bytes_retrans_delta, sockets.bytes_retrans)) AS bytes_retrans,
    sum(added(segs_out_delta, sockets.segs_out)) AS segs_out,
    sum(added(segs_in_delta, sockets.segs_in)) AS segs_in,
    sum(added(total_retrans_segments_delta, total_retrans_segments)) AS retrans_segments,
    sum(added(busy_time_us_delta, sockets.busy_time_us)) AS busy_time_us,
    sum(added(rwnd_limited_us_delta, sockets.rwnd_limited_us)) AS rwnd_limited_us,
    sum(added(sndbuf_limited_us_delta, sockets.sndbuf_limited_us)) AS sndbuf_limited_us,
    countIf(record_kind = 2) AS closes,
    countIf(close_reason = 3) AS our_resets,
    countIf(close_reason = 4) AS peer_resets,
    countIf(close_reason = 5) AS refused,
    countIf(close_reason = 6) AS timed_out,
    quantilesTDigestStateIf(0.5, 0.9, 0.99)(ifNull(sockets.rtt_us, 0), sockets.rtt_us > 0) AS rtt_us
FROM sockets
-- A listener does not have traffic; accept_queues.sql covers listeners.
WHERE ifNull(state, 0) != 10
GROUP BY minute, host, pod_uid, container_id, systemd_unit, role, service_port, local, peer;
