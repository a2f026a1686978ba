-- Holds whose time ran out fail with that reason: nobody decided. Locks job rows, SKIP LOCKED; relies on job_hold_until.
-- Their unique keys are given back; one with a window is free for others, and stays for a retry.
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
)
SELECT id
FROM expired
WHERE unique_key IS NULL OR :"schema".give_back_key(id, unique_scope, unique_key, has_failed => true) IS NOT NULL
