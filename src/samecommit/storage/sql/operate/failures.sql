-- What jobs failed of, most jobs first, of the newest 10,000 failed ones. No locks; relies on job_kept.
SELECT kind, cause, jobs, first_at, last_at, newest_id
FROM :"schema".failure_groups
WHERE :kind::text IS NULL OR kind = :kind::text
ORDER BY jobs DESC, last_at DESC
LIMIT :room::int
