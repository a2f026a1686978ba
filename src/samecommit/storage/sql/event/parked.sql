-- What is parked of a position, by key and state, with the seconds to the first that is due. No locks.
SELECT p.key, p.state, p.blocks, count(*), extract(epoch FROM min(p.due_at) - clock_timestamp())::float8
FROM :"schema".parked AS p
WHERE p.destination = :destination::text AND p.lane % :shards::int = :shard::int
GROUP BY p.key, p.state, p.blocks
