-- A page of one large window: a walk of the log by number, as far as :upto, which costs what it passes, once, however many pages
-- follow. No locks; relies on the primary key.
SELECT page.*
FROM (
    SELECT :n::bigint AS n, e.number, e.lane, e.version, e.id, e.source, e.type, e.key, e.subject, e.content_type, e.created_at, e.extensions::text, e.data,
           sum(octet_length(e.data)) OVER (ORDER BY e.number) - octet_length(e.data) AS bytes_before
    FROM (
        SELECT e.*
        FROM :"schema".event AS e
        WHERE e.number > :after::bigint
          AND e.number <= :upto::bigint
          AND NOT pg_visible_in_snapshot(e.xid, :before::text::pg_snapshot)
          AND pg_visible_in_snapshot(e.xid, :snapshot::text::pg_snapshot)
        ORDER BY e.number
        LIMIT :room::int
    ) AS e
) AS page
WHERE page.bytes_before < :max_bytes::bigint
ORDER BY page.number
