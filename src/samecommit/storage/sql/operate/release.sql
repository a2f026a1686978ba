-- Lets a held job go on with a decision, through the contract's function. Locks the job.
SELECT :"schema".release(:id::bigint, :decision::jsonb) AS outcome
