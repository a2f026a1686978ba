-- Rings once for each queue, to be heard at the commit.
SELECT :"schema".ring(:'schema.queue'::regclass, queue_id)
FROM pg_catalog.unnest(:queue_ids::int[]) AS queue_id
