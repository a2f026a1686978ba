-- Days that were taken out of their tables and not dropped, by a process that ended in between: named as a day, past their
-- retention, owned as their table is, and marked by mark_day. What a person has detached to keep has no mark. No locks.
SELECT c.relname::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class AS parent ON parent.relnamespace = n.oid AND parent.relkind = 'p' AND parent.relowner = c.relowner
JOIN unnest(:parents::text[], :days::int[]) AS kept (parent, days) ON kept.parent = parent.relname
WHERE n.nspname = :'schema'
  AND c.relkind = 'r' AND NOT c.relispartition
  AND CASE WHEN c.relname ~ '_\d{8}$' AND c.relname = parent.relname || right(c.relname, 9)
           THEN to_date(right(c.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - kept.days
           ELSE false END
  AND obj_description(c.oid, 'pg_class') = 'samecommit: past its time, detached to be dropped'
ORDER BY 1
