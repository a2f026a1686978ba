-- Asks for a replay, through the contract's function. Locks nothing that exists.
SELECT :"schema".replay_events(
    :destination::text, :numbers::bigint[], :keys::text[], :types::text[],
    coalesce(:since_at::timestamptz, clock_timestamp() - make_interval(secs => :since_seconds::float8)),
    coalesce(:until_at::timestamptz, clock_timestamp() - make_interval(secs => :until_seconds::float8)),
    :per_second::float8, :note::text) AS id
