-- What a look-back begins with. The low-water mark's sample: the oldest transaction still open, the next one to begin, the
-- last place given. And lanes that the worker does not know yet: one probe of job_in_line per gap between its known
-- priorities, given as parallel arrays with bounds excluded. No locks.
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, (SELECT last_value FROM :"schema".pos_seq),
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
