-- Runs a failed job again, or one for later now, through the contract's function. Locks the job.
SELECT :"schema".retry(:id::bigint) AS outcome
