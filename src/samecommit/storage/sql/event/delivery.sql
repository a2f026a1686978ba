-- What is known of a job's delivery: attempts, when the first and the last began, how long ago, whether its end is unknown,
-- and whether it followed a person's decision.
SELECT d.attempts, d.first_at, d.last_at, extract(epoch FROM clock_timestamp() - d.last_at)::float8,
       extract(epoch FROM clock_timestamp() - d.first_at)::float8, d.is_doubtful, d.is_decided
FROM :"schema".delivery AS d
WHERE d.job_id = :job_id::bigint
