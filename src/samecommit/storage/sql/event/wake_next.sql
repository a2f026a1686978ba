-- Lets the next delivery of a key run soon, when this one is about to end. Locks one waiting row, skipping it when it is busy.
UPDATE :"schema".job AS j
SET run_at = clock_timestamp() + make_interval(secs => :after_seconds::float8)
FROM (
    SELECT n.id
    FROM :"schema".delivery_turn AS t
    JOIN :"schema".job AS n ON n.id = t.job_id AND n.state = 'ready'
    WHERE t.destination = :destination::text AND t.target = :target::text AND t.key = :key::text
      AND t.job_id > :job_id::bigint
    ORDER BY t.job_id
    LIMIT 1
    FOR UPDATE OF n SKIP LOCKED
) AS next
WHERE j.id = next.id AND j.pos IS NULL AND j.claim_id IS NULL AND j.blocked_by IS NULL
  AND j.run_at > clock_timestamp() + make_interval(secs => :after_seconds::float8)
