-- One step of a look through all jobs, highest id first: at most :walk live and :walk ended ones below :before, of which
-- those that fit come back, :room at most. `floor` is how far the step has looked, NULL when there is nothing further; it
-- stands in a row of NULLs when nothing fits. Never counts. No locks; relies on the primary key and job_history_id.
WITH live AS (
    SELECT j.id, j.queue_id, j.kind, CASE WHEN j.claim_id IS NOT NULL THEN 'running' ELSE j.state END AS state,
           CASE WHEN j.claim_id IS NOT NULL THEN 'running'
                WHEN j.state = 'ready' AND j.pos IS NULL AND j.blocked_by IS NULL
                THEN CASE WHEN j.attempts > 0 THEN 'retrying' ELSE 'scheduled' END
                ELSE j.state END AS shown_as,
           j.priority, j.attempts, j.max_attempts, j.created_at, j.run_at, j.claimed_at,
           CASE WHEN j.claim_id IS NOT NULL THEN j.claimed_at ELSE j.since_at END AS since_at,
           CASE WHEN j.state = 'held' THEN j.hold_reason ELSE j.last_error END AS note
    FROM :"schema".job AS j
    WHERE j.id < :before::bigint
      AND coalesce(:state::text NOT IN ('done', 'cancelled'), true)
    ORDER BY j.id DESC
    LIMIT :walk::int
), ended AS (
    SELECT h.id, h.queue_id, h.kind, h.state, h.state AS shown_as, h.priority, h.attempts, h.max_attempts, h.created_at,
           h.run_at, h.claimed_at, h.finished_at AS since_at, CASE WHEN h.state <> 'done' THEN h.last_error END AS note
    FROM :"schema".job_history AS h
    WHERE h.id < :before::bigint
      AND coalesce(:state::text IN ('done', 'cancelled'), true)
    ORDER BY h.id DESC
    LIMIT :walk::int
), looked AS (
    SELECT greatest((SELECT min(id) FROM live HAVING count(*) >= :walk::int),
                    (SELECT min(id) FROM ended HAVING count(*) >= :walk::int)) AS floor
)
SELECT looked.floor, fitting.*
FROM looked
LEFT JOIN LATERAL (
    SELECT a.id, q.name AS queue, a.kind, a.shown_as AS state, a.priority, a.attempts, a.max_attempts, a.created_at, a.run_at,
           a.claimed_at, a.since_at, left(split_part(a.note, E'\n', 1), 300) AS note
    FROM (SELECT * FROM live UNION ALL SELECT * FROM ended) AS a
    JOIN :"schema".queue AS q ON q.id = a.queue_id
    WHERE a.id >= coalesce(looked.floor, 0)
      AND (:queue::text IS NULL OR q.name = :queue::text)
      AND (:kind::text IS NULL OR a.kind = :kind::text)
      AND (:state::text IS NULL OR :state::text IN (a.state, a.shown_as))
    ORDER BY a.id DESC
    LIMIT :room::int
) AS fitting ON true
ORDER BY fitting.id DESC
