-- The oldest open replay of a position: which, how far, to where, how fast. No locks; relies on replay_open.
SELECT r.id, s.after, r.to_number, r.per_second
FROM :"schema".replay_position AS s
JOIN :"schema".event_replay AS r ON r.id = s.replay
WHERE s.destination = :destination::text AND s.shard = :shard::int AND s.ended_at IS NULL
ORDER BY s.replay
LIMIT 1
