-- Cancels a job, or asks the worker that runs it to stop it, through the contract's function. Locks the job.
SELECT :"schema".cancel(:id::bigint, :reason::text) AS outcome
