-- Makes jobs of events and moves the position, in one transaction: no event is expanded twice or never. No row when the
-- fence is not ours any more; when the position is not where we know it to be: these jobs were made already, by a transaction
-- whose answer was lost; and when the last window that we have read is not there: the server was set back.
WITH mine AS (
    UPDATE :"schema".position
    SET window_n = :window_n::bigint, after = :after::bigint,
        moved_at = CASE WHEN (window_n, after) = (:window_n::bigint, :after::bigint) THEN moved_at ELSE clock_timestamp() END,
        lease_until_at = clock_timestamp() + make_interval(secs => :lease_seconds::float8), heard_at = clock_timestamp(),
        delivered = delivered + cardinality(:payloads::text[])
    WHERE destination = :destination::text AND shard = :shard::int AND fence = :fence::bigint
      AND (window_n, after) = (:from_n::bigint, :from_after::bigint)
      AND EXISTS (SELECT FROM :"schema".event_window AS w WHERE w.n = :seen_n::bigint)
    RETURNING destination, shard
), made AS MATERIALIZED (
    SELECT j.id, n.target, n.key
    FROM mine
    CROSS JOIN unnest(:payloads::text[], :effect_keys::text[], :metas::text[], :targets::text[], :keys::text[])
                    AS n (payload, effect_key, meta, target, key)
    CROSS JOIN LATERAL :"schema".enqueue(
        kind => :kind::text, payload => n.payload::jsonb, queue => :queue::text, max_attempts => :max_attempts::int,
        effect_key => n.effect_key, meta => n.meta::jsonb) AS j
), turns AS (
    INSERT INTO :"schema".delivery_turn (destination, target, key, job_id)
    SELECT :destination::text, made.target, made.key, made.id FROM made WHERE made.key IS NOT NULL
)
SELECT d.paused_at IS NOT NULL,
       EXISTS (SELECT FROM :"schema".replay_position AS r
               WHERE r.destination = mine.destination AND r.shard = mine.shard AND r.ended_at IS NULL),
       (SELECT count(*) FROM made)
FROM mine
JOIN :"schema".destination AS d ON d.name = mine.destination
