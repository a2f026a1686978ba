-- Days of the log that nobody needs any more: past :keep days, before every position, with nothing parked from them, and
-- with nothing to come: every transaction that was open at a window made after that day has ended. What is left half detached
-- comes first: until it has gone no other day can be detached. No locks.
WITH behind AS (
    SELECT w.snapshot
    FROM :"schema".event_window AS w
    WHERE w.n = (SELECT min(p.window_n) FROM :"schema".position AS p)
), settled AS (
    SELECT max(w.made_at) AS until_at
    FROM :"schema".event_window AS w
    WHERE pg_snapshot_xmax(w.snapshot) <= pg_snapshot_xmin(pg_current_snapshot()) AND w.n > 0
)
SELECT child.relname::text, i.inhdetachpending
FROM pg_catalog.pg_inherits AS i
JOIN pg_catalog.pg_class AS child ON child.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT to_date(right(child.relname, 8), 'YYYYMMDD') + 1 AS ends) AS day
CROSS JOIN LATERAL (SELECT (day.ends - 1)::timestamp AT TIME ZONE 'UTC' AS from_at,
                           day.ends::timestamp AT TIME ZONE 'UTC' AS to_at) AS span
CROSS JOIN settled
WHERE i.inhparent = :'schema.event'::regclass
  AND child.relname ~ '_\d{8}$'
  AND (i.inhdetachpending OR (
       day.ends < (now() AT TIME ZONE 'UTC')::date - :keep::int
       AND settled.until_at > span.to_at
       AND NOT EXISTS (SELECT FROM :"schema".parked AS p WHERE p.created_at >= span.from_at AND p.created_at < span.to_at)
       AND NOT EXISTS (SELECT FROM behind
                       JOIN :"schema".event AS e
                         ON e.created_at >= span.from_at AND e.created_at < span.to_at
                        AND e.xid >= pg_snapshot_xmin(behind.snapshot)
                        AND NOT pg_visible_in_snapshot(e.xid, behind.snapshot))))
ORDER BY 2 DESC, 1
