-- Brings jobs back in line whose kind a living worker knows again. Locks job rows with SKIP LOCKED; relies on job_blocked.
WITH back AS (
    UPDATE :"schema".job
    SET blocked_by = NULL, pos = nextval(:'schema.pos_seq')
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
    RETURNING queue_id
)
SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT queue_id FROM back) AS q
                  WHERE :"schema".ring(:'schema.queue'::regclass, queue_id) IS NOT NULL)
FROM back
