-- The window that a position has done (NULL before it) and those behind it, oldest first. No locks; by primary key.
SELECT w.n, w.snapshot::text, w.events, w.first, w.last
FROM :"schema".event_window AS w
WHERE w.n >= :window_n::bigint
ORDER BY w.n
LIMIT :room::int
