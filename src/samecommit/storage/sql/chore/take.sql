-- Takes a chore that is due by moving its next date ahead, in a short transaction of its own: a stopped process then holds
-- no lock, and somebody else takes the next turn. Locks one row, skipping it when it is busy.
UPDATE :"schema".chore
SET due_at = clock_timestamp() + make_interval(secs => :hold_seconds::float8), taken_by = :lease_id::bigint,
    started_at = clock_timestamp(), last_error = NULL
WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM :"schema".chore AS c
    WHERE c.name = :name::text AND (c.due_at <= clock_timestamp() OR c.taken_by = :lease_id::bigint)
    FOR UPDATE SKIP LOCKED))
RETURNING name
