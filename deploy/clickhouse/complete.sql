-- Whether the store has all records of every run that has reported totals, and which ones it lacks. A run's records are numbered from 0
-- (`sequence`), and totals say how many there were when they were made (`next_sequence`). If a run was killed before its first
-- totals, or after its latest ones, the number of later records is unknown. What a TTL has deleted is missing as well.
-- Both queries read all of `sockets`: in a large store ask for one run (`run_id = …` in each place where it is named).

-- One row for each run: records that were made, those of them that are here, and how many are missing. A record that arrived twice
-- counts once. Records that are newer than the latest totals are left out of the sum.
WITH runs AS
(
    SELECT run_id, any(host) AS host, min(time) AS first_totals, max(time) AS last_totals, max(next_sequence) AS made
    FROM polls
    WHERE run_id IS NOT NULL
    GROUP BY run_id
)
SELECT
    runs.run_id AS run_id,
    any(runs.host) AS host,
    any(runs.first_totals) AS first_totals,
    any(runs.last_totals) AS last_totals,
    any(runs.made) AS made,
    uniqExactIf(sockets.sequence, sockets.sequence < runs.made) AS stored,
    made - stored AS missing
FROM runs LEFT JOIN sockets ON sockets.run_id = runs.run_id
GROUP BY runs.run_id
ORDER BY missing DESC, run_id;

-- One row for each gap: the first and the last sequence that is missing. No row: nothing is missing.
SELECT run_id, previous + 1 AS first_missing, sequence - 1 AS last_missing
FROM
(
    SELECT
        run_id,
        sequence,
        lagInFrame(sequence, 1, toInt64(-1)) OVER (PARTITION BY run_id ORDER BY sequence
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS previous
    FROM
    (
        SELECT DISTINCT assumeNotNull(run_id) AS run_id, toInt64(assumeNotNull(sequence)) AS sequence
        FROM sockets
        WHERE sockets.run_id IS NOT NULL AND sockets.sequence IS NOT NULL
        -- What is missing after the last record shows up against the totals.
        UNION DISTINCT
        SELECT told.run_id, told.made
        FROM
        (
            SELECT assumeNotNull(run_id) AS run_id, toInt64(assumeNotNull(max(next_sequence))) AS made
            FROM polls
            WHERE polls.run_id IS NOT NULL AND polls.next_sequence IS NOT NULL
            GROUP BY run_id
        ) AS told
        LEFT JOIN
        (
            SELECT assumeNotNull(run_id) AS run_id, toInt64(assumeNotNull(max(sequence))) AS last
            FROM sockets
            WHERE sockets.run_id IS NOT NULL AND sockets.sequence IS NOT NULL
            GROUP BY run_id
        ) AS stored ON stored.run_id = told.run_id
        -- A record may be newer than the totals: then it is no sign of itself.
        WHERE told.made > stored.last
    )
)
WHERE sequence > previous + 1
ORDER BY run_id, first_missing;
