-- Makes the day that a row needs and did not find. Takes no strong lock on a parent.
SELECT count(*) FILTER (WHERE :"schema".make_day(p.partrelid, (:moment::timestamptz AT TIME ZONE 'UTC')::date))
FROM pg_catalog.pg_partitioned_table AS p
JOIN pg_catalog.pg_class AS c ON c.oid = p.partrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :'schema' AND p.partstrat = 'r'
