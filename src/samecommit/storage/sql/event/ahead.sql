-- How many deliveries of a key are to end before this one (counted to 100), and the first of them. What failed or is held for a
-- person lets the next one go. No locks; a range of delivery_turn's primary key, and each one's job by id.
SELECT count(*), min(ahead.job_id)
FROM (
    SELECT t.job_id
    FROM :"schema".delivery_turn AS t
    JOIN :"schema".job AS j ON j.id = t.job_id AND j.state = 'ready'
    WHERE t.destination = :destination::text AND t.target = :target::text AND t.key = :key::text
      AND t.job_id < :job_id::bigint
    ORDER BY t.job_id
    LIMIT 100
) AS ahead
