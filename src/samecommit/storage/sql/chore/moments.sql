-- The moments whose days a finish of these jobs may need: now, and when they were claimed. No locks.
SELECT clock_timestamp()
UNION
SELECT claimed_at FROM :"schema".job WHERE id = ANY (:ids::bigint[]) AND claimed_at IS NOT NULL
