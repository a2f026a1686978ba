-- Forgets deliveries whose job has ended.
DELETE FROM :"schema".delivery AS d
WHERE NOT EXISTS (SELECT FROM :"schema".job AS j WHERE j.id = d.job_id)
