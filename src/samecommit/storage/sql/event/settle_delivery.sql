-- Writes down what a send has shown: certainly not taken, or still in doubt. Fenced by the job's claim. Locks one row.
UPDATE :"schema".delivery AS d
SET is_doubtful = :is_doubtful::boolean, is_decided = coalesce(:is_decided::boolean, d.is_decided),
    last_error = :error::text
WHERE d.job_id = :job_id::bigint
  AND EXISTS (SELECT FROM :"schema".job AS j
              WHERE j.id = d.job_id AND j.claims = :claims::int AND j.claim_id IS NOT NULL)
