-- What a worker must know of the world: its queues (open or paused), kinds that cool down with the seconds left. No locks.
SELECT (SELECT coalesce(json_object_agg(q.id, q.name), '{}')
        FROM :"schema".queue AS q
        WHERE (:queues::text[] IS NULL OR q.name = ANY (:queues::text[]))
          AND NOT (q.paused_at IS NOT NULL AND coalesce(q.paused_until > clock_timestamp(), true)))::text,
       (SELECT coalesce(json_object_agg(c.kind, extract(epoch FROM c.until_at - clock_timestamp())), '{}')
        FROM :"schema".cooldown AS c
        WHERE c.until_at > clock_timestamp())::text
