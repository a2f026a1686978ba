-- One job with everything that is known of it, live or ended. No locks; relies on the primary key and job_history_id.
SELECT *
FROM :"schema".jobs
WHERE id = :id::bigint
ORDER BY finished_at DESC NULLS FIRST
LIMIT 1
