-- Gives the jobs of dead leases to somebody else. Claims are matched against living leases every round, so a claim that
-- commits late is found by a later round. Locks claim rows, then job rows, both with SKIP LOCKED.
--
-- Each lost lease spends an attempt. A job goes back to the head of its lane after its first (places below 0, in the order
-- of their return), since it has waited for a lease already; found in a second dead lease it is a suspect
-- and waits for a claim with few others, then alone. A lease lost while the job ran alone as a suspect is a crash; at the
-- crash limit it is held, so that one killer neither loops for ever nor drags its neighbours along. It is no crash while
-- other leases die without the job: then somebody is killing workers, and the job is not to blame.
WITH dead AS (
    SELECT c.claim_id, c.lease_id, c.ids
    FROM :"schema".claim AS c
    WHERE NOT EXISTS (SELECT FROM :"schema".worker AS w WHERE w.lease_id = c.lease_id)
    ORDER BY c.claimed_at
    LIMIT :room::int
    FOR UPDATE SKIP LOCKED
), company AS (
    SELECT c.lease_id, count(*) AS jobs
    FROM :"schema".claim AS c
    CROSS JOIN LATERAL unnest(c.ids) AS held (id)
    CROSS JOIN LATERAL (SELECT FROM :"schema".job WHERE job.id = held.id AND job.claim_id = c.claim_id) AS j
    WHERE c.lease_id IN (SELECT lease_id FROM dead)
    GROUP BY c.lease_id
), mine AS (
    SELECT j.*, dead.lease_id,
           j.attempts + 1 >= j.max_attempts AS is_spent,
           CASE WHEN j.lost > 0
                 AND (SELECT jobs FROM company WHERE company.lease_id = dead.lease_id) = 1
                 AND NOT EXISTS (
                     SELECT FROM :"schema".death AS d
                     WHERE d.lease_id <> dead.lease_id
                       AND d.died_at > clock_timestamp() - make_interval(secs => :trouble_seconds::float8)
                       AND NOT EXISTS (SELECT FROM :"schema".attempt AS a
                                       WHERE a.job_id = j.id AND a.lease_id = d.lease_id))
                THEN 1 ELSE 0 END AS crash
    FROM dead
    CROSS JOIN LATERAL unnest(dead.ids) AS held (id)
    CROSS JOIN LATERAL (
        SELECT job.id, job.claim_id, job.claimed_at, job.claims, job.attempts, job.max_attempts, job.crashes, job.lost
        FROM :"schema".job
        WHERE job.id = held.id AND job.claim_id = dead.claim_id
        FOR UPDATE SKIP LOCKED
    ) AS j
), judged AS (
    SELECT mine.*,
           CASE WHEN mine.crashes + mine.crash >= :crash_limit::int THEN 'held'
                WHEN mine.is_spent THEN 'failed'
                ELSE 'ready' END AS verdict,
           mine.lost >= 1 AS is_suspect
    FROM mine
), reaped AS (
    UPDATE :"schema".job
    SET state = judged.verdict,
        pos = CASE WHEN judged.verdict = 'ready' AND NOT judged.is_suspect THEN nextval(:'schema.pos_seq') - 4611686018427387904 END,
        blocked_by = CASE WHEN judged.verdict = 'ready' AND judged.is_suspect THEN 'suspect' END,
        run_at = CASE WHEN judged.crash > 0
                      THEN clock_timestamp() + make_interval(secs => :crash_delay_seconds::float8 * 4.0 ^ (judged.crashes))
                      ELSE job.run_at END,
        since_at = CASE WHEN judged.verdict <> 'ready' THEN clock_timestamp() END,
        claim_id = NULL,
        attempts = job.attempts + 1,
        lost = job.lost + 1,
        crashes = job.crashes + judged.crash,
        last_error = 'lease lost: its worker was killed, stopped or cut off',
        hold_reason = CASE WHEN judged.verdict = 'held'
                           THEN format('its worker died %s times while it ran alone', judged.crashes + judged.crash)
                           ELSE job.hold_reason END
    FROM judged
    WHERE job.id = judged.id AND job.claim_id = judged.claim_id
    RETURNING job.id, job.queue_id, job.pos, job.state, job.unique_scope, job.unique_key
), released AS (
    DELETE FROM :"schema".unique_key AS k
    USING reaped AS e
    WHERE e.unique_key IS NOT NULL AND e.state = 'failed' AND k.scope = e.unique_scope AND k.key = e.unique_key AND k.job_id = e.id
      AND (k.until_at IS NULL OR k.until_at <= clock_timestamp())  -- else a retry goes on with the window
), audited AS (
    INSERT INTO :"schema".attempt AS a (job_id, claim_id, claimed_at, ended_at, lease_id, number, outcome, error)
    SELECT judged.id, judged.claim_id, judged.claimed_at, clock_timestamp(), judged.lease_id, judged.claims,
           CASE WHEN judged.crash > 0 THEN 'crashed' ELSE 'lost' END, 'lease lost'
    FROM judged
    ON CONFLICT (job_id, claim_id, claimed_at) DO UPDATE
        SET ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error
)
SELECT (SELECT count(*) FROM dead),
       count(*),
       count(*) FILTER (WHERE state = 'held'),
       count(*) FILTER (WHERE pos IS NULL OR :"schema".ring(:'schema.queue'::regclass, queue_id) IS NOT NULL)
FROM reaped
