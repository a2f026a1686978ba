-- The last resort when a failure cannot be written as it is: only the mark, fenced, with a text of our own. One row by key;
-- its unique key is given back, unless a window keeps it for a retry.
WITH failed AS (
    UPDATE :"schema".job
    SET state = 'failed', pos = NULL, blocked_by = NULL, since_at = clock_timestamp(), claim_id = NULL,
        attempts = attempts + 1, lost = 0, last_error = :error::text
    WHERE id = :id::bigint AND claim_id = :claim_id::bigint
    RETURNING id, unique_scope, unique_key
), released AS (
    DELETE FROM :"schema".unique_key AS k
    USING failed AS e
    WHERE e.unique_key IS NOT NULL AND k.scope = e.unique_scope AND k.key = e.unique_key AND k.job_id = e.id
      AND (k.until_at IS NULL OR k.until_at <= clock_timestamp())  -- else a retry goes on with the window
)
SELECT id FROM failed
