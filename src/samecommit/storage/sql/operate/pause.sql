-- Stops workers from claiming from a queue, through the contract's function; an end given in seconds counts on the
-- database's clock. Locks the queue's row.
SELECT :"schema".pause(:queue::text, :reason::text,
                       coalesce(:until_at::timestamptz, clock_timestamp() + make_interval(secs => :until_seconds::float8)))
