-- The jobs that run now below :before, highest id first, found through the claims: as many as workers have room for. No locks.
SELECT j.id, q.name AS queue, j.kind, 'running' AS state, j.priority, j.attempts, j.max_attempts, j.created_at, j.run_at,
       j.claimed_at, j.claimed_at AS since_at,
       CASE WHEN w.pid IS NULL THEN 'its worker is gone' ELSE format('pid %s on %s', w.pid, w.host) END AS note
FROM :"schema".claim AS c
CROSS JOIN LATERAL unnest(c.ids) AS held (id)
JOIN :"schema".job AS j ON j.id = held.id AND j.claim_id = c.claim_id
JOIN :"schema".queue AS q ON q.id = j.queue_id
LEFT JOIN :"schema".worker AS w ON w.lease_id = c.lease_id AND w.expires_at > clock_timestamp()
WHERE j.id < :before::bigint
  AND (:queue::text IS NULL OR q.name = :queue::text)
  AND (:kind::text IS NULL OR j.kind = :kind::text)
ORDER BY j.id DESC
LIMIT :room::int
