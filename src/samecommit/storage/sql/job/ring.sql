-- Rings once for each queue, to be heard at the commit.
SELECT :"schema".ring(:'schema.queue'::regclass, queue_id)
FROM unnest(:queue_ids::int[]) AS queue_id
