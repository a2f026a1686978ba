-- Writes how far a replay is, fenced by the position that it goes beside; whether it is still open. No row when the fence is
-- not ours any more. Locks the position against a new holder, then the replay's row.
WITH mine AS (
    SELECT p.destination, p.shard
    FROM :"schema".position AS p
    WHERE p.destination = :destination::text AND p.shard = :shard::int AND p.fence = :fence::bigint
    FOR SHARE
), moved AS (
    UPDATE :"schema".replay_position AS s
    SET after = :after::bigint, sent = s.sent + :sent::bigint, refused = s.refused + :refused::bigint, trouble = :trouble::text,
        refusal = coalesce(:refusal::text, s.refusal), moved_at = clock_timestamp(), ended_at = CASE WHEN :is_done::boolean THEN clock_timestamp() END
    FROM mine
    WHERE s.replay = :replay::int AND s.shard = mine.shard AND s.ended_at IS NULL
    RETURNING s.replay
)
SELECT EXISTS (SELECT FROM moved) FROM mine
