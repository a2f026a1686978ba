-- Drops unique keys whose window is over and whose job has ended. While its job lives, that decides and not the window: such a
-- key loses its window and is not looked at again, or each turn would look up the jobs of all of them. Returns how many were
-- dropped and how many stay. Locks key rows for this statement only, SKIP LOCKED; relies on unique_key_window.
WITH over AS MATERIALIZED (
    SELECT k.ctid, EXISTS (SELECT FROM :"schema".job AS j WHERE j.id = k.job_id AND j.state <> 'failed') AS is_held
    FROM :"schema".unique_key AS k
    WHERE k.until_at <= (SELECT clock_timestamp())
    ORDER BY k.until_at
    LIMIT :room::int
    FOR UPDATE OF k SKIP LOCKED
), swept AS (
    DELETE FROM :"schema".unique_key
    WHERE ctid = ANY (ARRAY(SELECT over.ctid FROM over WHERE NOT over.is_held))
    RETURNING job_id
), kept AS (
    UPDATE :"schema".unique_key
    SET until_at = NULL
    WHERE ctid = ANY (ARRAY(SELECT over.ctid FROM over WHERE over.is_held))
    RETURNING job_id
)
SELECT (SELECT count(*) FROM swept), (SELECT count(*) FROM kept)
