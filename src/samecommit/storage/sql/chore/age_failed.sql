-- Moves failed jobs past their age to the history, where they keep their id. Locks job rows; relies on job_kept.
WITH gone AS (
    DELETE FROM :"schema".job
    WHERE ctid = ANY (ARRAY(
        SELECT j.ctid
        FROM :"schema".job AS j
        WHERE j.state = 'failed' AND j.since_at < (SELECT clock_timestamp()) - make_interval(secs => :age_seconds::float8)
        ORDER BY j.since_at
        LIMIT :room::int
        FOR UPDATE SKIP LOCKED))
    RETURNING *
), kept AS (
    INSERT INTO :"schema".job_history (
        id, run_at, created_at, claim_id, claimed_at, finished_at, parent_id, replay_of, queue_id, claims, priority, attempts,
        crashes, max_attempts, retention, payload_version, kind, state, tags, effect_key, unique_scope, unique_key, last_error,
        decision, meta, payload)
    SELECT id, run_at, created_at, NULL, claimed_at, clock_timestamp(), parent_id, replay_of, queue_id, claims, priority,
           attempts, crashes, max_attempts, CASE retention WHEN 0 THEN 1 ELSE retention END, payload_version, kind, 'failed',
           tags, effect_key, unique_scope, unique_key, last_error, decision, meta, payload
    FROM gone
)
SELECT count(*) FROM gone
