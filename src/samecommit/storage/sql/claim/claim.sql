-- Takes up to :room jobs from the lanes, best lane first, for one lease; records the claim in the same statement.
-- Locks job rows in line order with SKIP LOCKED; relies on job_in_line. A lease that is not alive takes nothing.
-- Lanes come as parallel arrays and are walked lazily: a later lane is not looked at once :room is filled. A start below 0
-- means the head of the lane alone, where jobs of dead and of stopped workers are (`chore/reap`, `job/settle`).
-- Behind :sures a row that another transaction has touched (its xmax is set) is passed over without a try: it was claimed since
-- the snapshot. SKIP LOCKED alone would wait out the row's newest version, lock it, and keep its owner from ending the job.
WITH claimed AS (
    UPDATE :"schema".job
    SET claim_id = :claim_id::bigint, claims = claims + 1, claimed_at = clock_timestamp()
    WHERE ctid = ANY (ARRAY(
        SELECT line.ctid
        FROM unnest(:queue_ids::int[], :priorities::smallint[], :starts::bigint[], :sures::bigint[])
            AS lane (queue_id, priority, start, sure)
        CROSS JOIN LATERAL (
            SELECT j.ctid
            FROM :"schema".job AS j
            WHERE j.queue_id = lane.queue_id
              AND j.priority = lane.priority
              AND j.pos > lane.start
              AND j.pos <= CASE WHEN lane.start < 0 THEN 0 ELSE 9223372036854775807 END
              AND j.claim_id IS NULL
              AND (j.xmax = '0'::xid OR j.pos <= lane.sure)
              AND j.kind = ANY (:kinds::text[])
            ORDER BY j.pos
            LIMIT :room::int
            FOR UPDATE SKIP LOCKED
        ) AS line
        WHERE EXISTS (SELECT FROM :"schema".worker AS w
                      WHERE w.lease_id = :lease_id::bigint AND w.expires_at > clock_timestamp())
        LIMIT :room::int))
    RETURNING id, pos, queue_id, priority, kind, claims, attempts, max_attempts, claimed_at, created_at, run_at,
              crashes, payload_version, parent_id, replay_of, effect_key, expires_at, tags, decision::text, meta::text,
              payload::text
), recorded AS (
    INSERT INTO :"schema".claim (claim_id, lease_id, ids)
    SELECT :claim_id::bigint, :lease_id::bigint, array_agg(id)
    FROM claimed
    HAVING count(*) > 0
)
SELECT * FROM claimed
