-- The next events of a replay in the order of the log, cut at so many bytes. No locks; walks the primary key.
SELECT page.*
FROM (
    SELECT e.number, e.lane, e.version, e.id, e.source, e.type, e.key, e.subject, e.content_type, e.created_at, e.extensions::text, e.data,
           sum(octet_length(e.data)) OVER (ORDER BY e.number) - octet_length(e.data) AS bytes_before
    FROM (
        SELECT f.number, f.created_at
        FROM :"schema".replay_numbers(:replay::int, :shard::int, :after::bigint, :upto::bigint) AS f
        ORDER BY f.number
        LIMIT :room::int
    ) AS n
    JOIN :"schema".event AS e ON e.number = n.number AND e.created_at = n.created_at
) AS page
WHERE page.bytes_before < :max_bytes::bigint
ORDER BY page.number
