-- Makes the day partitions from yesterday to :ahead days ahead, wherever they are missing. Takes no strong lock on a parent.
SELECT count(*) FILTER (WHERE :"schema".make_day(p.partrelid, day::date))
FROM pg_catalog.pg_partitioned_table AS p
JOIN pg_catalog.pg_class AS c ON c.oid = p.partrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN generate_series((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + :ahead::int,
                           interval '1 day') AS day
WHERE n.nspname = :'schema' AND p.partstrat = 'r'
