-- Moves a position, renews its lease and writes what was put aside since, all or nothing: no row when the fence is not
-- ours any more, or the destination is paused (is_paused then). Locks the position, then parked rows; nobody else writes these but `resolve`.
WITH mine AS (
    UPDATE :"schema".position
    SET window_n = :window_n::bigint, after = :after::bigint, moved_at = clock_timestamp(),
        lease_until_at = clock_timestamp() + make_interval(secs => :lease_seconds::float8),
        delivered = delivered + :delivered::bigint, repeated = repeated + :repeated::bigint,
        state = :state::text, trouble = :trouble::text, ref = coalesce(:ref::text, ref)
    WHERE destination = :destination::text AND shard = :shard::int AND fence = :fence::bigint
    RETURNING destination
), gone AS (
    DELETE FROM :"schema".parked AS p
    USING mine
    WHERE p.destination = mine.destination AND p.number = ANY (:gone::bigint[])
), put AS (
    INSERT INTO :"schema".parked AS p (
        destination, number, created_at, lane, key, blocks, state, attempts, due_at, is_doubtful, last_error)
    SELECT mine.destination, n.number, n.created_at, n.lane, n.key, n.blocks, n.state, n.attempts,
           clock_timestamp() + make_interval(secs => n.delay), n.is_doubtful, n.last_error
    FROM mine
    CROSS JOIN unnest(
        :numbers::bigint[], :created_ats::timestamptz[], :lanes::smallint[], :keys::text[], :blocks::boolean[],
        :states::text[], :attempts::int[], :delays::float8[], :doubts::boolean[], :errors::text[]
    ) AS n (number, created_at, lane, key, blocks, state, attempts, delay, is_doubtful, last_error)
    ON CONFLICT (destination, number) DO UPDATE
        SET blocks = excluded.blocks, state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at,
            is_doubtful = excluded.is_doubtful, last_error = excluded.last_error
), freed AS (
    UPDATE :"schema".parked AS p
    SET state = 'due', due_at = clock_timestamp()
    FROM mine
    CROSS JOIN unnest(:freed_keys::text[]) AS k (key)
    CROSS JOIN LATERAL (
        SELECT min(q.number) AS number
        FROM :"schema".parked AS q
        WHERE q.destination = mine.destination AND q.key = k.key AND q.blocks
          AND q.number <> ALL (:gone::bigint[]) AND q.number <> ALL (:numbers::bigint[])
    ) AS head
    WHERE p.destination = mine.destination AND p.number = head.number AND p.state = 'waiting'
)
SELECT d.paused_at IS NOT NULL
FROM mine
JOIN :"schema".destination AS d ON d.name = mine.destination
