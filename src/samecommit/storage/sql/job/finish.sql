-- Ends jobs for good: exact (id, claim_id) pairs move to the history as done or cancelled, with their results and records.
-- Locks job rows with SKIP LOCKED; relies on the primary key. Ids that do not come back are locked (try them singly) or
-- fenced (somebody else owns them: drop). Never by a ctid remembered from the claim: the slot may hold another job by now.
--
-- A unique key is given back with its job, unless a window keeps it; jobs without one cost nothing. The key's row is never
-- waited for: while its job lives, only what ends the job locks it, and `unique/sweep` for a moment.
WITH mine AS (
    SELECT j.ctid, coalesce(wanted.state, 'done') AS state, wanted.result, wanted.error, wanted.record
    FROM unnest(:ids::bigint[], :claim_ids::bigint[], :states::text[], :results::text[]::jsonb[], :errors::text[], :records::text[]::jsonb[])
        AS wanted (id, claim_id, state, result, error, record)
    CROSS JOIN LATERAL (
        SELECT job.ctid
        FROM :"schema".job
        WHERE job.id = wanted.id AND job.claim_id = wanted.claim_id
        FOR UPDATE SKIP LOCKED
    ) AS j
), ended AS (
    DELETE FROM :"schema".job
    USING mine
    WHERE job.ctid = mine.ctid
    RETURNING job.id, run_at, created_at, claim_id, claimed_at, parent_id, replay_of, queue_id, claims, priority, attempts,
              crashes, max_attempts, retention, payload_version, kind, mine.state AS end_state, tags, effect_key, unique_scope,
              unique_key, coalesce(mine.error, last_error) AS error, decision, meta, mine.result, payload, mine.record
), recorded AS (
    INSERT INTO :"schema".attempt AS a (job_id, claim_id, claimed_at, ended_at, lease_id, number, outcome, error, record)
    SELECT id, claim_id, claimed_at, clock_timestamp(), :lease_id::bigint, claims, end_state, error, record
    FROM ended
    WHERE record IS NOT NULL
    ON CONFLICT (job_id, claim_id, claimed_at) DO UPDATE
        SET ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error,
            record = coalesce(a.record, '{}') || excluded.record
), released AS (
    DELETE FROM :"schema".unique_key AS k
    USING ended AS e
    WHERE e.unique_key IS NOT NULL AND k.scope = e.unique_scope AND k.key = e.unique_key AND k.job_id = e.id
      AND (k.until_at IS NULL OR k.until_at <= clock_timestamp() OR e.end_state = 'cancelled')
), kept AS (
    INSERT INTO :"schema".job_history (
        id, run_at, created_at, claim_id, claimed_at, finished_at, parent_id, replay_of, queue_id, claims, priority, attempts,
        crashes, max_attempts, retention, payload_version, kind, state, tags, effect_key, unique_scope, unique_key,
        last_error, decision, meta, result, payload)
    SELECT id, run_at, created_at, claim_id, claimed_at, clock_timestamp(), parent_id, replay_of, queue_id, claims, priority,
           attempts, crashes, max_attempts, retention, payload_version, kind, end_state, tags, effect_key, unique_scope, unique_key,
           error, decision, meta, result, payload
    FROM ended
    WHERE retention > 0
)
SELECT id FROM ended
