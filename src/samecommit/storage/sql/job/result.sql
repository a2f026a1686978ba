-- How a job stands, and its result: what still waits is found first, without a look at the history. No locks.
SELECT j.kind, j.state, j.last_error, j.result::text
FROM :"schema".jobs AS j
WHERE j.id = :id::bigint
LIMIT 1
