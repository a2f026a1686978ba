-- Steps jobs out of line whose kind no living worker knows, looking at the head of each lane only: further back they are
-- in nobody's way. Only jobs that have waited a little, and only while some worker has lived that long. The head is read
-- without locks (a locked row would be skipped by claims); what fits is locked with SKIP LOCKED and checked again, so that
-- neither waits for the other where an application's transaction has locked such a job.
WITH known AS (
    SELECT coalesce(array_agg(DISTINCT k.kind), '{}') AS kinds, coalesce(min(w.started_at), clock_timestamp()) AS since_at
    FROM :"schema".worker AS w
    CROSS JOIN LATERAL unnest(w.kinds) AS k (kind)
    WHERE w.expires_at > clock_timestamp()
), lane AS (
    SELECT q.id AS queue_id, p.priority
    FROM :"schema".queue AS q
    CROSS JOIN LATERAL (
        WITH RECURSIVE used AS (
            (SELECT j.priority FROM :"schema".job AS j
             WHERE j.queue_id = q.id AND j.pos IS NOT NULL
             ORDER BY j.priority DESC LIMIT 1)
            UNION ALL
            SELECT n.priority FROM used
            CROSS JOIN LATERAL (SELECT j.priority FROM :"schema".job AS j
                                WHERE j.queue_id = q.id AND j.pos IS NOT NULL AND j.priority < used.priority
                                ORDER BY j.priority DESC LIMIT 1) AS n
        )
        SELECT priority FROM used
    ) AS p
), unknown AS (
    SELECT head.ctid
    FROM known
    CROSS JOIN lane
    CROSS JOIN LATERAL (
        SELECT j.ctid, j.kind, j.run_at
        FROM :"schema".job AS j
        WHERE j.queue_id = lane.queue_id AND j.priority = lane.priority AND j.pos IS NOT NULL AND j.claim_id IS NULL
        ORDER BY j.pos
        LIMIT :room::int
    ) AS head
    WHERE head.kind <> ALL (known.kinds)
      AND head.run_at < clock_timestamp() - make_interval(secs => :patience_seconds::float8)
      AND known.since_at < clock_timestamp() - make_interval(secs => :patience_seconds::float8)
), aside AS (
    UPDATE :"schema".job
    SET pos = NULL, blocked_by = 'kind'
    WHERE ctid = ANY (ARRAY(
        SELECT j.ctid
        FROM :"schema".job AS j
        WHERE j.ctid = ANY (ARRAY(SELECT unknown.ctid FROM unknown))
          AND coalesce(j.pos, 0) <> 0  -- not `pos IS NOT NULL`: that would offer the whole line's index in place of the ctids
          AND j.claim_id IS NULL
        FOR UPDATE SKIP LOCKED))
    RETURNING id
)
SELECT count(*) FROM aside
