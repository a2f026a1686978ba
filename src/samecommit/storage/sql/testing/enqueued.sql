-- The payloads of a task's live jobs, oldest first, for assertions in tests. No locks.
SELECT j.payload::text
FROM :"schema".jobs AS j
WHERE j.kind = ANY (:kinds::text[]) AND j.finished_at IS NULL
ORDER BY j.id
