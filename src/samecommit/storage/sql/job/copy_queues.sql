-- What jobs take from their queues. No locks.
SELECT q.name, q.id, q.retention, q.max_attempts
FROM :"schema".queue AS q
WHERE q.name = ANY (:names::text[])
