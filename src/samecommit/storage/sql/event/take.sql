-- Takes a position whose lease is free, unless its destination is paused or this database is a copy; says whether the last
-- holder left it clean, and how long it has stood where it is. Locks one row, skipping it when it is busy.
WITH old AS (
    SELECT p.destination, p.shard, p.is_clean, p.moved_at
    FROM :"schema".position AS p
    WHERE p.destination = :destination::text
      AND p.shard = :shard::int
      AND (p.lease_until_at <= clock_timestamp() OR p.holder = :holder::bigint)
      AND :"schema".away() IS NULL
      AND NOT EXISTS (SELECT FROM :"schema".destination AS d WHERE d.name = p.destination AND d.paused_at IS NOT NULL)
    FOR UPDATE SKIP LOCKED
)
UPDATE :"schema".position AS p
SET fence = p.fence + 1, holder = :holder::bigint, holder_name = :holder_name::text, is_clean = false,
    state = 'running', trouble = NULL, resume_at = NULL, heard_at = clock_timestamp(),
    lease_until_at = clock_timestamp() + make_interval(secs => :lease_seconds::float8)
FROM old
WHERE p.destination = old.destination AND p.shard = old.shard
RETURNING p.fence, p.window_n, p.after, old.is_clean, clock_timestamp(),
          extract(epoch FROM clock_timestamp() - old.moved_at)::float8,
          EXISTS (SELECT FROM :"schema".replay_position AS r
                  WHERE r.destination = p.destination AND r.shard = p.shard AND r.ended_at IS NULL)
