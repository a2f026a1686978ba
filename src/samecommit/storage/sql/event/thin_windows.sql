-- Merges windows that every destination has behind it: of each thousand the last one stays, with the events of all, so that
-- a new destination can still start there. Locks the positions against a destination that starts at one of them.
WITH floor AS (
    SELECT min(p.window_n) / 1000 * 1000 AS n FROM (SELECT window_n FROM :"schema".position FOR SHARE) AS p
), gone AS (
    DELETE FROM :"schema".event_window AS w
    USING floor
    WHERE w.n < floor.n AND w.n % 1000 <> 0
      AND EXISTS (SELECT FROM :"schema".event_window AS h WHERE h.n = (w.n / 1000 + 1) * 1000)
    RETURNING w.n, w.events, w.first, w.last
)
UPDATE :"schema".event_window AS w
SET events = w.events + g.events, first = least(w.first, g.first), last = greatest(w.last, g.last)
FROM (SELECT (gone.n / 1000 + 1) * 1000 AS home, sum(gone.events)::bigint AS events, min(gone.first) AS first,
             max(gone.last) AS last
      FROM gone GROUP BY 1) AS g
WHERE w.n = g.home
