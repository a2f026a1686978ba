-- Seconds until the next job for later is due, NULL when nothing waits. No locks; relies on job_later.
SELECT extract(epoch FROM j.run_at - clock_timestamp())::float8
FROM :"schema".job AS j
WHERE j.pos IS NULL
  AND j.state = 'ready'
  AND j.blocked_by IS NULL
  AND j.run_at >= :start::timestamptz
ORDER BY j.run_at
LIMIT 1
