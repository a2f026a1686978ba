-- Inserts what is behind the stored position and moves it, in one statement. Events without a position are late: they are
-- known by their id. Locks the target's row. Returns the ids that were there already.
WITH stored AS (
    SELECT p.target, p.position FROM :"schema".position AS p WHERE p.target = :target::text FOR UPDATE
), sent AS (
    SELECT n.id, n.replay, n.position, n.type, n.key, n.attributes, n.content_type, n.data,
           n.position > stored.position IS NOT FALSE AS is_new
    FROM stored
    CROSS JOIN unnest(
        :ids::text[], :replays::int[], :positions::text[], :types::text[], :keys::text[], :attributes::text[],
        :content_types::text[], :bodies::bytea[]
    ) AS n (id, replay, position, type, key, attributes, content_type, data)
), put AS (
    INSERT INTO :"schema".event (id, replay, destination, position, type, key, attributes, content_type, data)
    SELECT s.id, s.replay, :destination::text, s.position, s.type, s.key, s.attributes::jsonb, s.content_type, s.data
    FROM sent AS s
    WHERE s.is_new
    ON CONFLICT DO NOTHING
    RETURNING id
), moved AS (
    UPDATE :"schema".position AS p
    SET position = last.position
    FROM (SELECT max(s.position) AS position FROM sent AS s WHERE s.is_new) AS last
    WHERE p.target = :target::text AND last.position > p.position
)
SELECT s.id FROM sent AS s WHERE s.id NOT IN (SELECT put.id FROM put)
