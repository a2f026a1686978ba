-- Takes ids and places in line for rows that are about to be streamed, and the database's time. The transaction gets its
-- id first: a place that is given before could be passed by the workers' bookmarks.
WITH asked AS MATERIALIZED (
    SELECT pg_catalog.clock_timestamp() AS at
    WHERE pg_catalog.pg_current_xact_id() IS NOT NULL
)
SELECT pg_catalog.to_char(asked.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
       ARRAY(SELECT pg_catalog.nextval(:'schema.job_id_seq') FROM pg_catalog.generate_series(1, :jobs::int)),
       ARRAY(SELECT pg_catalog.nextval(:'schema.pos_seq') FROM pg_catalog.generate_series(1, :places::int))
FROM asked
