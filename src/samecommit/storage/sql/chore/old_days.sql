-- The day partitions that are past their retention, oldest first, with what is left half detached. No locks.
-- A day of `attempt` or `body` is kept while a live job may need it: while any live job is older than that day's end.
SELECT parent.relname::text, child.relname::text, i.inhdetachpending
FROM pg_catalog.pg_inherits AS i
JOIN pg_catalog.pg_class AS parent ON parent.oid = i.inhparent
JOIN pg_catalog.pg_class AS child ON child.oid = i.inhrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = parent.relnamespace
JOIN unnest(:parents::text[], :days::int[]) AS kept (parent, days) ON kept.parent = parent.relname
WHERE n.nspname = :'schema'
  AND child.relname ~ '_\d{8}$'
  AND (i.inhdetachpending OR (
       to_date(right(child.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - kept.days
       AND (parent.relname LIKE 'job_history%'
            OR NOT EXISTS (SELECT FROM :"schema".job AS j
                           WHERE j.created_at < ((to_date(right(child.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC')))))
ORDER BY 2
