-- Makes jobs of a replay's events and writes how far it is, in one transaction; whether that was done, and whether it is still
-- open. No row when the fence of the position is not ours any more. Nothing is done when the replay is not where we know it to
-- be: these jobs were made already, by a transaction whose answer was lost, perhaps while this one waited for it.
-- Locks the position against a new holder, then the replay's row.
WITH mine AS (
    SELECT p.destination, p.shard
    FROM :"schema".position AS p
    WHERE p.destination = :destination::text AND p.shard = :shard::int AND p.fence = :fence::bigint
    FOR SHARE
), asked AS (
    SELECT s.replay, s.shard, s.after, s.ended_at
    FROM mine
    JOIN :"schema".replay_position AS s ON s.shard = mine.shard
    WHERE s.replay = :replay::int
    FOR UPDATE OF s
), moved AS (
    UPDATE :"schema".replay_position AS s
    SET after = :after::bigint, sent = s.sent + :sent::bigint, moved_at = clock_timestamp(),
        ended_at = CASE WHEN :is_done::boolean THEN clock_timestamp() END
    FROM asked
    WHERE s.replay = asked.replay AND s.shard = asked.shard AND asked.after = :from_after::bigint AND asked.ended_at IS NULL
    RETURNING s.replay
), made AS MATERIALIZED (
    SELECT j.id, n.target, n.key
    FROM moved
    CROSS JOIN unnest(:payloads::text[], :effect_keys::text[], :metas::text[], :targets::text[], :keys::text[])
                    AS n (payload, effect_key, meta, target, key)
    CROSS JOIN LATERAL :"schema".enqueue(
        kind => :kind::text, payload => n.payload::jsonb, queue => :queue::text, max_attempts => :max_attempts::int,
        effect_key => n.effect_key, meta => n.meta::jsonb) AS j
), turns AS (
    INSERT INTO :"schema".delivery_turn (destination, target, key, job_id)
    SELECT :destination::text, made.target, made.key, made.id FROM made WHERE made.key IS NOT NULL
)
SELECT EXISTS (SELECT FROM moved), EXISTS (SELECT FROM asked WHERE asked.ended_at IS NULL), (SELECT count(*) FROM made) FROM mine
