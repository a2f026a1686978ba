-- Stores events in the caller's transaction and in the order of the array, which is that of
-- their numbers. They travel as one text: a codec that an application has set for arrays, jsonb or bytea is not met.
SELECT e.number, e.id
FROM pg_catalog.json_to_recordset(:events::text::json) AS n (
    type text, data text, is_base64 boolean, key text, id text, source text, subject text, content_type text, version int,
    extensions text)
CROSS JOIN LATERAL :"schema".store_event(
    type         => n.type,
    data         => CASE WHEN n.is_base64 THEN pg_catalog.decode(n.data, 'base64') ELSE pg_catalog.convert_to(n.data, 'UTF8') END,
    key          => n.key,
    id           => n.id,
    source       => n.source,
    subject      => n.subject,
    content_type => n.content_type,
    version      => n.version,
    extensions   => n.extensions::jsonb) AS e
