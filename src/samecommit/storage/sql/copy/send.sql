-- Inserts what is behind the stored position and moves it, in one statement. Events without a position are late: they are
-- known by id and source. Locks the target's row. Returns for each event, by its place in the batch, whether it was inserted:
-- nothing when the target has no row, since nothing was inserted then.
WITH stored AS (
    SELECT p.target, p.position FROM :"schema".position AS p WHERE p.target = :target::text FOR UPDATE
), sent AS (
    SELECT n.place, n.id, n.source, n.replay, n.position, n.type, n.key, n.attributes, n.content_type, n.data,
           n.position > stored.position IS NOT FALSE AS is_new
    FROM stored
    CROSS JOIN unnest(
        :ids::text[], :sources::text[], :replays::int[], :positions::text[], :types::text[], :keys::text[], :attributes::text[],
        :content_types::text[], :bodies::bytea[]
    ) WITH ORDINALITY AS n (id, source, replay, position, type, key, attributes, content_type, data, place)
), put AS (
    INSERT INTO :"schema".event (id, source, replay, destination, position, type, key, attributes, content_type, data)
    SELECT s.id, s.source, s.replay, :destination::text, s.position, s.type, s.key, s.attributes::jsonb, s.content_type, s.data
    FROM sent AS s
    WHERE s.is_new
    ON CONFLICT DO NOTHING
    RETURNING id, source, replay
), moved AS (
    UPDATE :"schema".position AS p
    SET position = last.position
    FROM (SELECT max(s.position) AS position FROM sent AS s WHERE s.is_new) AS last
    WHERE p.target = :target::text AND last.position > p.position
)
SELECT (s.id, s.source, s.replay) IN (SELECT put.id, put.source, put.replay FROM put)
FROM sent AS s
ORDER BY s.place
