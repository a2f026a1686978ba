-- What was sent, may have arrived or not, and waits for a person: parked events of streams, and held jobs among the newest
-- 10,000. No locks; walks the primary key of parked, and job_kept.
(SELECT p.destination, p.number AS id, 'event' AS what, p.key, '' AS target, p.first_at AS since_at, p.attempts, p.last_error
 FROM :"schema".parked AS p
 WHERE p.state = 'decision' AND (:destination::text IS NULL OR p.destination = :destination::text)
 ORDER BY p.destination, p.number
 LIMIT :room::int)
UNION ALL
(SELECT v.destination, j.id, 'job', j.payload #>> '{event,key}', v.target, j.since_at, v.attempts, v.last_error
 FROM (SELECT x.id, x.since_at, x.payload FROM :"schema".job AS x
       WHERE x.state = 'held' ORDER BY x.since_at DESC LIMIT 10000) AS j
 JOIN :"schema".delivery AS v ON v.job_id = j.id AND v.is_doubtful
 WHERE :destination::text IS NULL OR v.destination = :destination::text
 ORDER BY j.id
 LIMIT :room::int)
