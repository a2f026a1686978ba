-- The queues with what a person asks of them; counts are bounded at 10,000 and say so with `+`. No locks.
SELECT q.name, q.is_paused, q.pause_reason, q.paused_until, q.retention, q.workers, waiting.jobs AS waiting,
       :"schema".away() AS away
FROM :"schema".queues AS q
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM (SELECT FROM :"schema".job AS j
          WHERE j.queue_id = (SELECT id FROM :"schema".queue WHERE name = q.name) AND j.pos IS NOT NULL AND j.claim_id IS NULL
          LIMIT 10001) AS bounded
) AS waiting
ORDER BY q.name
