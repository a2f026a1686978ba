-- Forgets the turns of deliveries whose job has ended.
DELETE FROM :"schema".delivery_turn AS t
WHERE NOT EXISTS (SELECT FROM :"schema".job AS j WHERE j.id = t.job_id)
