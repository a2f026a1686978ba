-- One step of a look through held or failed jobs, the latest first: :walk of them behind (:before_at, :before), of which
-- those that fit come back, :room at most. `floor_at` and `floor` are how far the step has looked, NULL when there is nothing
-- further; they stand in a row of NULLs when nothing fits. No locks; relies on job_kept.
WITH kept AS (
    SELECT j.id, j.queue_id, j.kind, j.state, j.priority, j.attempts, j.max_attempts, j.created_at, j.run_at, j.claimed_at,
           j.since_at, CASE WHEN j.state = 'held' THEN j.hold_reason ELSE j.last_error END AS note
    FROM :"schema".job AS j
    WHERE j.state = :state::text
      AND j.since_at <= :before_at::timestamptz
      AND (j.since_at, j.id) < (:before_at::timestamptz, :before::bigint)
    ORDER BY j.since_at DESC, j.id DESC
    LIMIT :walk::int
), looked AS (
    SELECT k.since_at AS floor_at, k.id AS floor
    FROM kept AS k
    WHERE (SELECT count(*) FROM kept) >= :walk::int
    ORDER BY k.since_at, k.id
    LIMIT 1
)
SELECT looked.floor_at, looked.floor, fitting.*
FROM (SELECT) AS always
LEFT JOIN looked ON true
LEFT JOIN LATERAL (
    SELECT k.id, q.name AS queue, k.kind, k.state, k.priority, k.attempts, k.max_attempts, k.created_at, k.run_at,
           k.claimed_at, k.since_at,
           left(split_part(k.note, E'\n', 1), 300) AS note
    FROM kept AS k
    JOIN :"schema".queue AS q ON q.id = k.queue_id
    WHERE (:queue::text IS NULL OR q.name = :queue::text)
      AND (:kind::text IS NULL OR k.kind = :kind::text)
    ORDER BY k.since_at DESC, k.id DESC
    LIMIT :room::int
) AS fitting ON true
ORDER BY fitting.since_at DESC, fitting.id DESC
