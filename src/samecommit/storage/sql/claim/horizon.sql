-- What the low-water mark is made of: the oldest transaction still open, the next one to begin, the last place given. No locks.
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, (SELECT last_value FROM :"schema".pos_seq)
FROM pg_current_snapshot() AS s
