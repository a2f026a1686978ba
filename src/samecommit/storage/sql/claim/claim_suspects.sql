-- Takes due suspects (jobs found in more than one dead lease) apart from the line: :room of them, one when :room is 1.
-- Locks job rows with SKIP LOCKED; relies on job_blocked, which a claim does not change.
WITH claimed AS (
    UPDATE :"schema".job
    SET claim_id = :claim_id::bigint, claims = claims + 1, claimed_at = clock_timestamp()
    WHERE ctid = ANY (ARRAY(
        SELECT j.ctid
        FROM :"schema".job AS j
        WHERE j.blocked_by = 'suspect'
          AND j.claim_id IS NULL
          AND j.run_at <= clock_timestamp()
          AND j.queue_id = ANY (:queue_ids::int[])
          AND j.kind = ANY (:kinds::text[])
          AND j.lost <= :lost::int
          AND EXISTS (SELECT FROM :"schema".worker AS w
                      WHERE w.lease_id = :lease_id::bigint AND w.expires_at > clock_timestamp())
        ORDER BY j.run_at
        LIMIT :room::int
        FOR UPDATE SKIP LOCKED))
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
