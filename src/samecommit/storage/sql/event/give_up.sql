-- Lets go of a position; clean when everything that was sent is behind it. Fenced.
UPDATE :"schema".position
SET lease_until_at = 'epoch', holder = NULL, is_clean = :is_clean::boolean
WHERE destination = :destination::text AND shard = :shard::int AND fence = :fence::bigint
