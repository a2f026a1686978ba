-- The lowest number of lost leases among the suspects that this worker could run now; NULL when there are none. No locks.
SELECT min(lost)
FROM (
    SELECT j.lost
    FROM :"schema".job AS j
    WHERE j.blocked_by = 'suspect'
      AND j.claim_id IS NULL
      AND j.run_at <= clock_timestamp()
      AND j.queue_id = ANY (:queue_ids::int[])
      AND j.kind = ANY (:kinds::text[])
    LIMIT 100
) AS waiting
