-- What is parked of a position, by key and state, with the seconds to the first whose turn it is (see parked_due). No locks.
-- Relies on parked_key.
SELECT p.key, p.state, p.blocks, count(*),
       extract(epoch FROM min(p.due_at) FILTER (
           WHERE p.state IN ('due', 'settled')
             AND (NOT p.blocks
                  OR NOT EXISTS (SELECT FROM :"schema".parked AS q
                                 WHERE q.destination = p.destination AND q.key = p.key AND q.blocks AND q.number < p.number))
       ) - clock_timestamp())::float8
FROM :"schema".parked AS p
WHERE p.destination = :destination::text AND p.lane % :shards::int = :shard::int
GROUP BY p.key, p.state, p.blocks
