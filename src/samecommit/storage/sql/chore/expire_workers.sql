-- Ends leases that ran out, and the backends of their processes: a stopped process must not keep locks. Locks worker rows
-- with SKIP LOCKED and a re-check: a heartbeat in between wins, and one that is stuck keeps no other lease. Terminates only our
-- own role's backends, by pid and start: they are found first (MATERIALIZED) and ended then, for a function in a WHERE may be
-- asked of every backend there is.
WITH dead AS (
    DELETE FROM :"schema".worker
    WHERE ctid = ANY (ARRAY(
        SELECT w.ctid
        FROM :"schema".worker AS w
        WHERE w.expires_at <= clock_timestamp()
        FOR UPDATE SKIP LOCKED))
    RETURNING lease_id, host, pid, backends
), noted AS (
    INSERT INTO :"schema".death (lease_id)
    SELECT lease_id FROM dead
    ON CONFLICT (lease_id) DO NOTHING
), forgotten AS (
    DELETE FROM :"schema".death
    WHERE died_at < clock_timestamp() - interval '1 day'
), theirs AS MATERIALIZED (
    SELECT d.lease_id, s.pid
    FROM dead AS d
    CROSS JOIN LATERAL jsonb_to_recordset(d.backends) AS b (pid int, backend_start timestamptz)
    JOIN pg_stat_activity AS s ON s.pid = b.pid AND s.backend_start = b.backend_start AND s.usename = current_user
    WHERE s.pid <> pg_backend_pid()
), ended AS MATERIALIZED (
    SELECT lease_id, pg_terminate_backend(pid) AS is_ended FROM theirs
)
SELECT d.lease_id, d.host, d.pid, (SELECT count(*) FROM ended AS e WHERE e.lease_id = d.lease_id AND e.is_ended)
FROM dead AS d
