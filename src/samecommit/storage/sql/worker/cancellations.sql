-- Which of this worker's running jobs somebody wants stopped. No locks; the table holds requests only.
SELECT c.job_id, c.reason
FROM :"schema".cancellation AS c
WHERE c.job_id = ANY (:ids::bigint[])
