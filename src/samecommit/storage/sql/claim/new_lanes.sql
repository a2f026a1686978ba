-- Finds lanes that the worker does not know yet: one probe of job_in_line per gap between known priorities. No locks.
-- Gaps come as parallel arrays, bounds excluded.
SELECT gap.queue_id, found.priority
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
