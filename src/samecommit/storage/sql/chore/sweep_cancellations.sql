-- Drops cancellation requests whose job has ended. Locks cancellation rows by key.
DELETE FROM :"schema".cancellation AS r
WHERE NOT EXISTS (SELECT FROM :"schema".job AS j WHERE j.id = r.job_id)
