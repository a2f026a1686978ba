-- The events of some small windows in the order of delivery, from behind :after in the first of them, cut at so many bytes.
-- No locks; two ranges of event_window_scan for each window.
SELECT page.n, page.number, page.lane, page.version, page.id, page.source, page.type, page.key, page.subject,
       page.content_type, page.created_at, page.extensions::text, page.data
FROM (
    SELECT w.n, e.number, e.lane, e.version, e.id, e.source, e.type, e.key, e.subject, e.content_type, e.created_at, e.extensions, e.data,
           sum(octet_length(e.data)) OVER (ORDER BY w.n, e.number) - octet_length(e.data) AS bytes_before
    FROM unnest(:ns::bigint[], :earlier::text[], :snapshots::text[]) AS w (n, before, snapshot)
    CROSS JOIN LATERAL (
        SELECT e.*
        FROM :"schema".event AS e
        WHERE e.xid >= pg_snapshot_xmax(w.before::pg_snapshot)
          AND e.xid < pg_snapshot_xmax(w.snapshot::pg_snapshot)
          AND pg_visible_in_snapshot(e.xid, w.snapshot::pg_snapshot)
        UNION ALL
        SELECT e.*
        FROM :"schema".event AS e
        WHERE e.xid = ANY (ARRAY(SELECT pg_snapshot_xip(w.before::pg_snapshot)))
          AND pg_visible_in_snapshot(e.xid, w.snapshot::pg_snapshot)
    ) AS e
    WHERE w.n > :first_n::bigint OR e.number > :after::bigint
) AS page
WHERE page.bytes_before < :max_bytes::bigint
ORDER BY page.n, page.number
LIMIT :room::int
