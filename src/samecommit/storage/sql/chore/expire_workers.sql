-- Ends leases that ran out, and the backends of their processes: a stopped process must not keep locks. Locks worker rows
-- by key with a re-check, so that a heartbeat in between wins. Terminates only our own role's backends, by pid and start.
WITH dead AS (
    DELETE FROM :"schema".worker
    WHERE expires_at <= clock_timestamp()
    RETURNING lease_id, host, pid, backends
)
SELECT d.lease_id, d.host, d.pid,
       (SELECT count(*)
        FROM jsonb_to_recordset(d.backends) AS b (pid int, backend_start timestamptz)
        JOIN pg_stat_activity AS s ON s.pid = b.pid AND s.backend_start = b.backend_start AND s.usename = current_user
        WHERE pg_terminate_backend(s.pid))
FROM dead AS d
