-- Writes down that a delivery is about to be sent, so that a run whose end is unknown is in doubt. Fenced by the job's claim:
-- no row when this run does not own the job any more. Locks one row.
INSERT INTO :"schema".delivery AS d (job_id, destination, target, is_decided)
SELECT j.id, :destination::text, :target::text, :is_decided::boolean
FROM :"schema".job AS j
WHERE j.id = :job_id::bigint AND j.claims = :claims::int AND j.claim_id IS NOT NULL
ON CONFLICT (job_id) DO UPDATE
    SET attempts = d.attempts + 1, last_at = clock_timestamp(), is_doubtful = true, is_decided = excluded.is_decided
RETURNING d.attempts, d.first_at
