-- Brings jobs back in line whose kind a living worker knows again; one that was given a later time meanwhile waits for it.
-- Locks job rows with SKIP LOCKED; relies on job_blocked.
WITH back AS (
    UPDATE :"schema".job
    SET blocked_by = NULL, pos = CASE WHEN run_at <= clock_timestamp() THEN nextval(:'schema.pos_seq') END
    WHERE ctid = ANY (ARRAY(
        SELECT waiting.ctid
        FROM (SELECT DISTINCT unnest(w.kinds) AS kind FROM :"schema".worker AS w WHERE w.expires_at > clock_timestamp()) AS known
        CROSS JOIN LATERAL (
            SELECT j.ctid
            FROM :"schema".job AS j
            WHERE j.blocked_by = 'kind' AND j.kind = known.kind
            LIMIT :room::int
            FOR UPDATE SKIP LOCKED
        ) AS waiting
        LIMIT :room::int))
    RETURNING queue_id, pos
)
SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT queue_id FROM back WHERE pos IS NOT NULL) AS q
                  WHERE :"schema".ring(:'schema.queue'::regclass, queue_id) IS NOT NULL)
FROM back
