-- What is put aside, in the order of the log. No locks; walks the primary key.
SELECT p.destination, p.number, p.key, p.state, p.attempts, p.first_at, p.due_at, p.is_doubtful, p.last_error
FROM :"schema".parked AS p
WHERE (:destination::text IS NULL OR p.destination = :destination::text)
  AND (:state::text IS NULL OR p.state = :state::text)
ORDER BY p.destination, p.number
LIMIT :room::int
