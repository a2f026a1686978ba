-- Puts a job aside for a person, through the contract's function; an end given in seconds counts on the database's clock.
-- Locks the job.
SELECT :"schema".hold(:id::bigint, :reason::text, :data::jsonb,
                      coalesce(:until_at::timestamptz, clock_timestamp() + make_interval(secs => :until_seconds::float8))) AS outcome
