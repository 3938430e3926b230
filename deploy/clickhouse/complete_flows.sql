-- Whether the store has all flow and counter rows of every run that has reported totals. Both kinds are numbered together from 0 (`sequence`), and
-- totals say how many there were when they were made (`next_sequence`). It reads all of `flows` and `counters`: in a large store ask for one run.

-- One row for each run: rows that were made, those of them that are here, and how many are missing. A row that arrived twice counts once.
WITH runs AS
(
    SELECT run_id, any(host) AS host, max(time) AS last_totals, max(next_sequence) AS made
    FROM flow_totals
    WHERE run_id IS NOT NULL
    GROUP BY run_id
),
numbers AS
(
    SELECT run_id, sequence FROM flows
    UNION ALL
    SELECT run_id, sequence FROM counters
)
SELECT
    runs.run_id AS run_id,
    any(runs.host) AS host,
    any(runs.last_totals) AS last_totals,
    any(runs.made) AS made,
    uniqExactIf(numbers.sequence, numbers.sequence < runs.made) AS stored,
    made - stored AS missing
FROM runs LEFT JOIN numbers ON numbers.run_id = runs.run_id
GROUP BY runs.run_id
ORDER BY missing DESC, run_id;
