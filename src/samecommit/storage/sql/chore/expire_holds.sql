-- Holds whose time ran out fail with that reason: nobody decided. Locks job rows, SKIP LOCKED; relies on job_hold_until.
-- Their unique keys are given back.
WITH expired AS (
    UPDATE :"schema".job
    SET state = 'failed', since_at = clock_timestamp(), hold_until_at = NULL,
        last_error = 'held until its date and nobody decided: ' || coalesce(hold_reason, 'no reason given')
    WHERE ctid = ANY (ARRAY(
        SELECT j.ctid
        FROM :"schema".job AS j
        WHERE j.hold_until_at <= (SELECT clock_timestamp()) AND j.state = 'held'
        ORDER BY j.hold_until_at
        LIMIT :room::int
        FOR UPDATE SKIP LOCKED))
    RETURNING id, unique_scope, unique_key
), released AS (
    DELETE FROM :"schema".unique_key AS k
    USING expired AS e
    WHERE e.unique_key IS NOT NULL AND k.scope = e.unique_scope AND k.key = e.unique_key AND k.job_id = e.id
)
SELECT id FROM expired
