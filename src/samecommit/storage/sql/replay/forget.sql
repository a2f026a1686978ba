-- Forgets replays that ended :keep days ago, with their positions. Locks their rows.
WITH old AS (
    SELECT r.id
    FROM :"schema".event_replay AS r
    WHERE NOT EXISTS (SELECT FROM :"schema".replay_position AS s
                      WHERE s.replay = r.id
                        AND (s.ended_at IS NULL OR s.ended_at > clock_timestamp() - make_interval(days => :keep::int)))
), positions AS (
    DELETE FROM :"schema".replay_position AS s USING old WHERE s.replay = old.id
)
DELETE FROM :"schema".event_replay AS r USING old WHERE r.id = old.id
