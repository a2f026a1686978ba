-- What a worker must know of the world: its queues (open or paused), kinds that cool down with the seconds left, and the
-- lowest number of lost leases among the suspects that it could run now (NULL: none). No locks; relies on job_blocked.
WITH open AS MATERIALIZED (
    SELECT q.id, q.name
    FROM :"schema".queue AS q
    WHERE (:queues::text[] IS NULL OR q.name = ANY (:queues::text[]))
      AND NOT (q.paused_at IS NOT NULL AND coalesce(q.paused_until > clock_timestamp(), true))
), cooling AS MATERIALIZED (
    SELECT c.kind, extract(epoch FROM c.until_at - clock_timestamp()) AS seconds
    FROM :"schema".cooldown AS c
    WHERE c.until_at > clock_timestamp()
)
SELECT (SELECT coalesce(json_object_agg(id, name), '{}') FROM open)::text,
       (SELECT coalesce(json_object_agg(kind, seconds), '{}') FROM cooling)::text,
       (SELECT min(lost)
        FROM (SELECT j.lost
              FROM :"schema".job AS j
              WHERE j.blocked_by = 'suspect'
                AND j.claim_id IS NULL
                AND j.run_at <= clock_timestamp()
                AND j.queue_id = ANY (ARRAY(SELECT id FROM open))
                AND j.kind = ANY (:kinds::text[])
                AND j.kind <> ALL (ARRAY(SELECT kind FROM cooling))
              LIMIT 100) AS waiting)
