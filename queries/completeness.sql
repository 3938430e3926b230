-- title: How complete the records of each collector's run are, and what its polls could not see
-- shows: sums
-- parameters: since until limit
-- column made: records
-- column missing: records
-- column lost_sockets: sockets
-- column lost_closes: closes
-- column unobserved_closes: closes
-- column failed_namespaces: namespaces
WITH
-- Polls that ended within the range. Records are numbered, and the totals of a poll have the number of the next one.
runs AS (
    SELECT {host} run_id, count(*) AS poll_count, max(time_unix_ns) AS last_unix_ns,
           min(next_sequence) AS begin_sequence, max(next_sequence) AS end_sequence,
           sum(coalesce(sockets_dropped_decode_failed, 0) + coalesce(sockets_dropped_other, 0)) AS lost_sockets,
           sum(coalesce(closes_dropped_event_buffer, 0) + coalesce(closes_dropped_decode_failed, 0)
               + coalesce(closes_dropped_other, 0)) AS lost_closes,
           sum(coalesce(closes_unobserved, 0) + coalesce(connections_unheard, 0)) AS unobserved_closes,
           sum(coalesce(namespaces_failed, 0)) AS failed_namespaces
    FROM {polls}
    WHERE run_id IS NOT NULL AND time_unix_ns >= {since} AND time_unix_ns + coalesce(poll_ns, 0) < {until}
    GROUP BY {host} run_id
),
present AS (
    SELECT entries.run_id AS run_id, count(DISTINCT entries.sequence) AS stored
    FROM {sockets} AS entries JOIN runs ON entries.run_id = runs.run_id
    WHERE entries.time_unix_ns >= {since} AND entries.sequence >= begin_sequence AND entries.sequence < end_sequence
    GROUP BY entries.run_id
)
SELECT {host} runs.run_id AS run_id, poll_count, last_unix_ns, end_sequence - begin_sequence AS made,
       end_sequence - begin_sequence - coalesce(stored, 0) AS missing,
       lost_sockets, lost_closes, unobserved_closes, failed_namespaces
FROM runs LEFT JOIN present ON present.run_id = runs.run_id
ORDER BY missing DESC, lost_closes DESC, {host} run_id
LIMIT {limit}
