-- Forgets windows older than the log, but the first, which shows nothing, and what a position stands at.
DELETE FROM :"schema".event_window AS w
WHERE w.n > 0
  AND w.n < (SELECT min(p.window_n) FROM :"schema".position AS p)
  AND w.made_at < now() - make_interval(days => :keep::int + 2)
