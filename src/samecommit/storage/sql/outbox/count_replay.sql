-- How many events of a replay are in one stretch of the log, with the first few. No locks; costs what it walks.
WITH found AS MATERIALIZED (
    SELECT f.* FROM :"schema".replay_numbers(:replay::int, NULL, :after::bigint, :upto::bigint) AS f
)
SELECT (SELECT count(*) FROM found) AS events,
       (SELECT coalesce(jsonb_agg(to_jsonb(f) ORDER BY f.number), '[]')
        FROM (SELECT x.* FROM found AS x ORDER BY x.number LIMIT 5) AS f) AS first
