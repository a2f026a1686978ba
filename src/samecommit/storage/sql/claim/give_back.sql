-- Gives back what this lease has claimed and its worker has not heard of: the answer was lost, or the claim arrived after its
-- connection was given up (the network keeps what it could not deliver). :known are the claims that it works on. Such a job
-- has never started, so it spends nothing and goes to the head of its lane. Locks claim rows, then job rows, both with SKIP LOCKED: `forget`
-- deletes claim rows of the same worker in an order of its own. A claim that has no job any more goes with the next look.
WITH lost AS (
    SELECT c.claim_id, c.ids
    FROM :"schema".claim AS c
    WHERE c.lease_id = :lease_id::bigint AND c.claim_id <> ALL (:known::bigint[])
    FOR UPDATE SKIP LOCKED
), mine AS (
    SELECT j.id, lost.claim_id
    FROM lost
    CROSS JOIN LATERAL unnest(lost.ids) AS held (id)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM :"schema".job
        WHERE job.id = held.id AND job.claim_id = lost.claim_id
        FOR UPDATE SKIP LOCKED
    ) AS j
), back AS (
    UPDATE :"schema".job
    SET claim_id = NULL, claims = job.claims - 1, pos = CASE WHEN job.pos IS NOT NULL THEN nextval(:'schema.pos_seq') - 4611686018427387904 END
    FROM mine
    WHERE job.id = mine.id AND job.claim_id = mine.claim_id
    RETURNING job.queue_id
), forgotten AS (
    DELETE FROM :"schema".claim AS c
    USING lost
    WHERE c.claim_id = lost.claim_id
      AND NOT EXISTS (SELECT
                      FROM unnest(lost.ids) AS held (id)
                      JOIN :"schema".job AS j ON j.id = held.id AND j.claim_id = lost.claim_id)
)
SELECT count(*), bool_or(:"schema".ring(:'schema.queue'::regclass, queue_id))
FROM back
