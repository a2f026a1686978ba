-- Prolongs a lease that is still alive; no row back means that it is lost and everything must stop. Locks one worker row.
UPDATE :"schema".worker
SET expires_at = clock_timestamp() + make_interval(secs => :lease_seconds::float8), beat_at = clock_timestamp(),
    running = :running::int, state = :state::text, note = :note::text, backends = :backends::jsonb
WHERE lease_id = :lease_id::bigint AND expires_at > clock_timestamp()
RETURNING lease_id
