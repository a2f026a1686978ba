-- Cools a kind for all workers after a rate limit; the later end wins. Locks one row; tells the others.
INSERT INTO :"schema".cooldown AS c (kind, until_at, reason)
VALUES (:kind::text, clock_timestamp() + make_interval(secs => :seconds::float8), :reason::text)
ON CONFLICT (kind) DO UPDATE
    SET until_at = greatest(c.until_at, excluded.until_at), reason = excluded.reason
RETURNING pg_notify('samecommit_' || :'schema.queue'::regclass::oid::text, 'queues') IS NOT NULL
