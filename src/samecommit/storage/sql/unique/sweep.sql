-- Drops unique keys whose window is over and whose job has ended. Locks key rows, SKIP LOCKED; relies on unique_key_window.
WITH swept AS (
    DELETE FROM :"schema".unique_key
    WHERE ctid = ANY (ARRAY(
        SELECT k.ctid
        FROM :"schema".unique_key AS k
        WHERE k.until_at <= (SELECT clock_timestamp())
          AND NOT EXISTS (SELECT FROM :"schema".job AS j WHERE j.id = k.job_id AND j.state <> 'failed')
        ORDER BY k.until_at
        LIMIT :room::int
        FOR UPDATE SKIP LOCKED))
    RETURNING job_id
)
SELECT count(*) FROM swept
