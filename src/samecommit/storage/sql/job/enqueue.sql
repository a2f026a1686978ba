-- Stores one job through the contract's function, in the caller's transaction. Values travel as texts, numbers and lists
-- of texts: a codec that an application has set for jsonb or timestamptz is not met. Lines of what is not given are left out.
SELECT e.id, e.created, e.replaced
FROM :"schema".enqueue(
    payload         => :payload::text::jsonb,
    queue           => :queue::text,
    priority        => :priority::int,
    run_at          => :run_at::text::timestamptz,
    delay           => pg_catalog.make_interval(secs => :delay_seconds::float8),
    max_attempts    => :max_attempts::int,
    tags            => :tags::text[],
    parent_id       => :parent_id::bigint,
    effect_key      => :effect_key::text,
    expires_at      => :expires_at::text::timestamptz,
    payload_version => :payload_version::int,
    meta            => :meta::text::jsonb,
    unique_key      => :unique_key::text,
    unique_scope    => :unique_scope::text,
    unique_for      => pg_catalog.make_interval(secs => :unique_seconds::float8),
    on_conflict     => :on_conflict::text,
    kind            => :kind::text
) AS e
