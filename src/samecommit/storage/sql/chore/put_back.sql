-- Says when a chore is due next, unless somebody else has taken it in between. Locks one row.
UPDATE :"schema".chore
SET due_at = clock_timestamp() + make_interval(secs => :delay_seconds::float8), finished_at = clock_timestamp(),
    last_error = :error::text
WHERE name = :name::text AND taken_by = :lease_id::bigint
