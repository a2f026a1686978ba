-- Forgets windows older than the log, but the first, which shows nothing, and what a position stands at. Locks the positions
-- against a destination that starts at one of them; they can move meanwhile.
DELETE FROM :"schema".event_window AS w
WHERE w.n > 0
  AND w.n < (SELECT min(p.window_n) FROM (SELECT window_n FROM :"schema".position FOR KEY SHARE) AS p)
  AND w.made_at < now() - make_interval(days => :keep::int + 2)
