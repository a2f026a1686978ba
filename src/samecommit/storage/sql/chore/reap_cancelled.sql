-- Jobs of dead leases that somebody had cancelled end as cancelled instead of starting again. Locks job rows, SKIP LOCKED.
-- Their requests go with them: one that stayed would cancel the job anew when somebody retries it.
WITH mine AS (
    SELECT j.ctid, r.reason
    FROM :"schema".cancellation AS r
    CROSS JOIN LATERAL (
        SELECT job.ctid
        FROM :"schema".job
        WHERE job.id = r.job_id
          AND (job.claim_id IS NULL
               OR NOT EXISTS (SELECT FROM :"schema".claim AS c JOIN :"schema".worker AS w USING (lease_id)
                              WHERE c.claim_id = job.claim_id))
          AND r.requested_at < clock_timestamp() - interval '1 second'
        FOR UPDATE SKIP LOCKED
    ) AS j
    LIMIT 1000
), gone AS (
    DELETE FROM :"schema".job
    USING mine
    WHERE job.ctid = mine.ctid
    RETURNING job.*, mine.reason
), told AS (
    DELETE FROM :"schema".cancellation AS r
    USING gone
    WHERE r.job_id = gone.id
), kept AS (
    INSERT INTO :"schema".job_history (
        id, run_at, created_at, claim_id, claimed_at, finished_at, parent_id, replay_of, queue_id, claims, priority, attempts,
        crashes, max_attempts, retention, payload_version, kind, state, tags, effect_key, unique_scope, unique_key, last_error,
        decision, meta, payload)
    SELECT id, run_at, created_at, claim_id, claimed_at, clock_timestamp(), parent_id, replay_of, queue_id, claims, priority,
           attempts, crashes, max_attempts, CASE retention WHEN 0 THEN 1 ELSE retention END, payload_version, kind,
           'cancelled', tags, effect_key, unique_scope, unique_key, coalesce(reason, last_error), decision, meta, payload
    FROM gone
    WHERE unique_key IS NULL OR :"schema".give_back_key(id, unique_scope, unique_key) IS NOT NULL
)
SELECT count(*) FROM gone
