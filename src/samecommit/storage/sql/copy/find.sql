-- Which of these events are there, each with its source and the replay that it came by. No locks; by primary key.
SELECT e.id, e.source, e.replay
FROM :"schema".event AS e
WHERE e.destination = :destination::text AND e.id = ANY (:ids::text[])
