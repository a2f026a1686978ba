-- A new lease for this process, unless this database is a copy: without a lease nothing is claimed or cleared away. Returns
-- the installation. Always durable (never synchronous_commit = off): a lease that a crash takes back could be given twice.
-- Inserts one worker row.
INSERT INTO :"schema".worker (lease_id, expires_at, pid, concurrency, host, version, queues, kinds, backends)
SELECT :lease_id::bigint, clock_timestamp() + make_interval(secs => :lease_seconds::float8), :pid::int, :concurrency::int,
       :host::text, :version::text, :queues::text[], :kinds::text[], :backends::jsonb
WHERE :"schema".away() IS NULL
RETURNING (SELECT value #>> '{}' FROM :"schema".setting WHERE name = 'installation')
