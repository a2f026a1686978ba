-- The attempts of one job, the newest first, :room at most. No locks; relies on attempt's primary key and job_history_id.
SELECT number, claimed_at, ended_at, outcome, error, record, progress
FROM :"schema".attempts
WHERE job_id = :id::bigint
ORDER BY number DESC, claimed_at DESC
LIMIT :room::int
