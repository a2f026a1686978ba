-- Adds a destination or takes up its changed configuration; true when it is new. It starts now, at the first event that is
-- kept, or at a moment.
SELECT :"schema".add_destination(
    :name::text, :mode::text, :shards::int, :matches::text[],
    CASE WHEN :from_start::boolean THEN 0
         WHEN :start_at::timestamptz IS NOT NULL THEN (
             SELECT coalesce(max(w.n), 0) FROM :"schema".event_window AS w WHERE w.made_at <= :start_at::timestamptz)
    END,
    :sink::text, :ordering::text)
