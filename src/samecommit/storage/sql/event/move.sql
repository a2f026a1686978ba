-- Moves a position, renews its lease and writes what was put aside since, all or nothing: no row when the fence is not
-- ours any more. Locks the position, then parked rows; nobody else writes these but `resolve`.
--
-- No row either when the last window that we have read is not there: the server was set back, by a failover that lost commits
-- or a recovery. Other events come then behind the windows that it has, perhaps under numbers that we have passed.
--
-- After a relay was cut off, the next one reads again what lies between the position and where that one was. An event that
-- is parked already then keeps its row; one that has gone since, though later ones of its key still wait, comes before them.
-- What a person has decided while it was sent again stays decided. How long an event is tried counts from when it is freed,
-- except for one in doubt: that is as old as its send.
WITH mine AS (
    UPDATE :"schema".position
    SET window_n = :window_n::bigint, after = :after::bigint,
        moved_at = CASE WHEN (window_n, after) = (:window_n::bigint, :after::bigint) THEN moved_at ELSE clock_timestamp() END,
        lease_until_at = clock_timestamp() + make_interval(secs => :lease_seconds::float8), heard_at = clock_timestamp(),
        delivered = delivered + :delivered::bigint, repeated = repeated + :repeated::bigint,
        state = :state::text, trouble = :trouble::text,
        resume_at = clock_timestamp() + make_interval(secs => :stopped_seconds::float8), ref = coalesce(:ref::text, ref)
    WHERE destination = :destination::text AND shard = :shard::int AND fence = :fence::bigint
      AND EXISTS (SELECT FROM :"schema".event_window AS w WHERE w.n = :seen_n::bigint)
    RETURNING destination, shard
), gone AS (
    DELETE FROM :"schema".parked AS p
    USING mine
    WHERE p.destination = mine.destination AND p.number = ANY (:gone::bigint[])
), coming AS (
    SELECT n.*, count(*) FILTER (WHERE n.blocks)
                    OVER (PARTITION BY n.key ORDER BY n.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM unnest(
        :numbers::bigint[], :created_ats::timestamptz[], :lanes::smallint[], :keys::text[], :blocks::boolean[],
        :states::text[], :attempts::int[], :delays::float8[], :doubts::boolean[], :errors::text[]
    ) AS n (number, created_at, lane, key, blocks, state, attempts, delay, is_doubtful, last_error)
), put AS (
    INSERT INTO :"schema".parked AS p (
        destination, number, created_at, lane, key, blocks, state, attempts, due_at, is_doubtful, last_error)
    SELECT mine.destination, n.number, n.created_at, n.lane, n.key, n.blocks,
           CASE WHEN n.state = 'waiting' AND n.before = 0
                     AND NOT EXISTS (SELECT FROM :"schema".parked AS q
                                     WHERE q.destination = mine.destination AND q.key = n.key AND q.blocks
                                       AND q.number < n.number AND q.number <> ALL (:gone::bigint[]))
                THEN 'due' ELSE n.state END,
           n.attempts, clock_timestamp() + make_interval(secs => n.delay), n.is_doubtful, n.last_error
    FROM mine
    CROSS JOIN coming AS n
    ON CONFLICT (destination, number) DO UPDATE
        SET blocks = excluded.blocks, state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at,
            is_doubtful = excluded.is_doubtful, last_error = excluded.last_error
        WHERE excluded.attempts > 0 AND p.state <> 'settled'
), freed AS (
    UPDATE :"schema".parked AS p
    SET state = 'due', due_at = clock_timestamp(), first_at = CASE WHEN p.is_doubtful THEN p.first_at ELSE clock_timestamp() END
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
SELECT d.paused_at IS NOT NULL,
       EXISTS (SELECT FROM :"schema".replay_position AS r
               WHERE r.destination = mine.destination AND r.shard = mine.shard AND r.ended_at IS NULL)
FROM mine
JOIN :"schema".destination AS d ON d.name = mine.destination
