-- Parked events whose turn it is: due or settled, and first of their key. No locks: their only other writer is `resolve`.
-- One that was due by :sent_until may have been sent by a relay that was cut off then: it is in doubt.
-- Relies on parked_due and parked_key.
SELECT e.number, e.lane, e.version, e.id, e.source, e.type, e.key, e.subject, e.content_type, e.created_at, e.extensions::text, e.data, p.state, p.attempts,
       p.is_doubtful OR (p.state = 'due' AND p.due_at <= :sent_until::timestamptz) IS TRUE, p.blocks, extract(epoch FROM clock_timestamp() - p.first_at)::float8
FROM (
    SELECT p.*
    FROM :"schema".parked AS p
    WHERE p.destination = :destination::text
      AND p.state IN ('due', 'settled')
      AND p.due_at <= statement_timestamp()
      AND p.lane % :shards::int = :shard::int
      AND (NOT p.blocks
           OR NOT EXISTS (SELECT FROM :"schema".parked AS q
                          WHERE q.destination = p.destination AND q.key = p.key AND q.blocks AND q.number < p.number))
    ORDER BY p.due_at, p.number
    LIMIT :room::int
) AS p
JOIN :"schema".event AS e ON e.number = p.number AND e.created_at = p.created_at
ORDER BY p.number
