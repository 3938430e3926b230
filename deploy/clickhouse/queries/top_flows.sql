-- Who sends most to whom, by sFlow: bytes of the last hour by definition, source and destination, loss-corrected, with their 95 %
-- interval. `raw` is the figure from multiplying by the configured sampling rate, which is lower by what was lost.
--
-- A definition whose key has no source or no destination shows `::` there; one row of each may be flows that were merged. If several
-- samplers saw a flow, the one that saw most of it counts (`max`). Two collectors that receive from the same agents are two hosts here.

WITH
    spread / (2 * bytes) AS shift,
    sqrt(spread + shift * shift) AS half_width
SELECT
    definition,
    host,
    replaceOne(toString(src), '::ffff:', '') AS source,
    replaceOne(toString(dst), '::ffff:', '') AS destination,
    bytes,
    toUInt64(greatest(floor(bytes + shift - half_width), 0)) AS low,
    toUInt64(ceil(bytes + shift + half_width)) AS high,
    raw,
    samples,
    merged
FROM
(
    -- What a run's best sampler saw of a flow; runs follow each other.
    SELECT
        definition, host, src, dst,
        sum(run.1) AS bytes, sum(run.2) AS spread, sum(run.3) AS raw, sum(run.4) AS samples, sum(run.5) AS merged
    FROM
    (
        SELECT definition, host, run_id, src, dst, protocol, dst_port, src_group, dst_group, max(figures) AS run
        FROM
        (
            SELECT
                definition, host, run_id, sampler, src, dst, protocol, dst_port, src_group, dst_group,
                (sum(bytes), sum(bytes_spread), sum(raw_bytes), sum(samples), sum(merged_flows)) AS figures
            FROM flows_by_minute
            WHERE minute >= now() - INTERVAL 1 HOUR AND traffic = 1
            GROUP BY ALL
        )
        GROUP BY ALL
    )
    GROUP BY ALL
)
WHERE bytes > 0
ORDER BY bytes DESC, definition, host, source, destination
LIMIT 50;
