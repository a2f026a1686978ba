-- Streams jobs in, as text. Ids and places are from `copy_places`; the rest are the columns that `enqueue` writes.
COPY :"schema".job (
    id, pos, run_at, created_at, expires_at, parent_id, queue_id, priority, max_attempts, retention, payload_version, kind,
    tags, effect_key, meta, payload
) FROM STDIN
