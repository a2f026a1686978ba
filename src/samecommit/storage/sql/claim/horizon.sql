-- What a look-back begins with. The low-water marks' sample: the oldest transaction still open, the oldest one from :old_xid on
-- (those before it have been open for long), the next one to begin, the last place given. And lanes that the worker does not know yet: one probe of job_in_line per gap between its known
-- priorities, given as parallel arrays with bounds excluded. No locks.
-- xmax is the newest ended transaction and one, not the next to begin: the reader adds a margin of 64, which an idle database
-- takes long to pass. :is_precise draws a transaction id instead (less the margin), for a worker whose looks are dear.
SELECT pg_snapshot_xmin(s)::text::bigint,
       coalesce((SELECT min(x.xid::text::bigint) FROM pg_snapshot_xip(s) AS x (xid) WHERE x.xid::text::bigint >= :old_xid::bigint),
                greatest(pg_snapshot_xmax(s)::text::bigint, :old_xid::bigint)),
       CASE WHEN :is_precise::boolean THEN pg_current_xact_id()::text::bigint - 63 ELSE pg_snapshot_xmax(s)::text::bigint END,
       (SELECT last_value FROM :"schema".pos_seq),
       ARRAY(
           SELECT gap.queue_id::bigint * 65536 + found.priority + 32768
           FROM unnest(:queue_ids::int[], :aboves::int[], :belows::int[]) AS gap (queue_id, above, below)
           CROSS JOIN LATERAL (
               SELECT j.priority
               FROM :"schema".job AS j
               WHERE j.queue_id = gap.queue_id
                 AND j.pos IS NOT NULL
                 AND j.priority > gap.above
                 AND j.priority < gap.below
               ORDER BY j.priority DESC
               LIMIT 1
           ) AS found
       )
FROM pg_current_snapshot() AS s
