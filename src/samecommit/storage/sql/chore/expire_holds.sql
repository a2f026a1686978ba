-- Holds whose time ran out fail with that reason: nobody decided. Locks job rows, SKIP LOCKED; relies on job_hold_until.
UPDATE :"schema".job
SET state = 'failed', since_at = clock_timestamp(), hold_until_at = NULL,
    last_error = 'held until its date and nobody decided: ' || coalesce(hold_reason, 'no reason given')
WHERE ctid = ANY (ARRAY(
    SELECT j.ctid
    FROM :"schema".job AS j
    WHERE j.hold_until_at <= clock_timestamp() AND j.state = 'held'
    ORDER BY j.hold_until_at
    LIMIT :room::int
    FOR UPDATE SKIP LOCKED))
RETURNING id
