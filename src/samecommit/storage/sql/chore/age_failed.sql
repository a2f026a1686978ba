-- Moves failed jobs past their age to the history, where they keep their id; a key that one has kept for its window is
-- given back, unless a rival is taking it. Locks job rows, then key rows, both with SKIP LOCKED; relies on job_kept.
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
), released AS (
    DELETE FROM :"schema".unique_key
    WHERE ctid = ANY (ARRAY(
        SELECT k.ctid
        FROM gone AS g
        JOIN :"schema".unique_key AS k ON k.scope = g.unique_scope AND k.key = g.unique_key AND k.job_id = g.id
        FOR UPDATE OF k SKIP LOCKED))
)
SELECT count(*) FROM gone
