-- Drops requests whose job has ended or was told. Locks cancellation rows by key.
DELETE FROM :"schema".cancellation
WHERE job_id = ANY (:ids::bigint[])
