-- The last resort when a failure cannot be written as it is: only the mark, fenced, with a text of our own. One row by key.
UPDATE :"schema".job
SET state = 'failed', pos = NULL, blocked_by = NULL, since_at = clock_timestamp(), claim_id = NULL, attempts = attempts + 1,
    lost = 0, last_error = :error::text
WHERE id = :id::bigint AND claim_id = :claim_id::bigint
RETURNING id
