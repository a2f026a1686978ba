-- Puts jobs whose time has come in line, oldest first, rings, and says how many seconds are left to the next one (NULL: nothing
-- waits). Locks job rows with SKIP LOCKED; relies on job_later.
-- The time is asked once, in a subselect: a volatile function is no bound for an index, and every later job would be read.
-- :start is a bookmark: what was promoted before leaves dead index entries in front while a transaction pins them.
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), promoted AS (
    UPDATE :"schema".job
    SET pos = nextval(:'schema.pos_seq')
    WHERE ctid = ANY (ARRAY(
        SELECT j.ctid
        FROM :"schema".job AS j
        WHERE j.pos IS NULL
          AND j.state = 'ready'
          AND j.blocked_by IS NULL
          AND j.claim_id IS NULL
          AND j.run_at <= (SELECT now FROM moment)
          AND j.run_at >= :start::timestamptz
        ORDER BY j.run_at
        LIMIT :room::int
        FOR UPDATE SKIP LOCKED))
    RETURNING run_at, queue_id
), rung AS (
    SELECT :"schema".ring(:'schema.queue'::regclass, queue_id) AS told
    FROM (SELECT DISTINCT queue_id FROM promoted) AS q
)
SELECT count(*), max(run_at), (SELECT count(*) FROM rung WHERE told IS NOT NULL),
       (SELECT extract(epoch FROM j.run_at - clock_timestamp())::float8
        FROM :"schema".job AS j
        WHERE j.pos IS NULL
          AND j.state = 'ready'
          AND j.blocked_by IS NULL
          AND j.run_at > (SELECT now FROM moment)
          AND j.run_at < 'infinity'::timestamptz  -- which PostgreSQL before 17 cannot subtract from
        ORDER BY j.run_at
        LIMIT 1)
FROM promoted
