-- The day partitions that are past their retention: what is left half detached first (until it has gone no other of its table
-- can be detached), then the oldest. A day of `attempt` or `body` comes with its end: it is kept while any live job is older
-- than that, as a live job may need it. No locks.
SELECT parent.relname::text, child.relname::text, i.inhdetachpending,
       CASE WHEN NOT i.inhdetachpending AND parent.relname NOT LIKE 'job_history%'
            THEN (to_date(right(child.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' END
FROM pg_catalog.pg_inherits AS i
JOIN pg_catalog.pg_class AS parent ON parent.oid = i.inhparent
JOIN pg_catalog.pg_class AS child ON child.oid = i.inhrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = parent.relnamespace
JOIN unnest(:parents::text[], :days::int[]) AS kept (parent, days) ON kept.parent = parent.relname
WHERE n.nspname = :'schema'
  AND child.relname ~ '_\d{8}$'
  AND (i.inhdetachpending OR to_date(right(child.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - kept.days)
ORDER BY 3 DESC, 2
