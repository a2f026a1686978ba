-- Drops claim rows of dead leases once none of their jobs is claimed by them any more. Locks claim rows, SKIP LOCKED. Dead
-- leases are found first (MATERIALIZED): else the jobs of every living worker would be looked up each time.
WITH dead AS MATERIALIZED (
    SELECT c.claim_id, c.claimed_at, c.ids
    FROM :"schema".claim AS c
    WHERE NOT EXISTS (SELECT FROM :"schema".worker AS w WHERE w.lease_id = c.lease_id)
)
DELETE FROM :"schema".claim
WHERE claim_id = ANY (ARRAY(
    SELECT c.claim_id
    FROM dead
    JOIN :"schema".claim AS c ON c.claim_id = dead.claim_id
    WHERE NOT EXISTS (SELECT FROM unnest(dead.ids) AS held (id)
                      JOIN :"schema".job AS j ON j.id = held.id AND j.claim_id = dead.claim_id)
    ORDER BY dead.claimed_at
    LIMIT :room::int
    FOR UPDATE OF c SKIP LOCKED))
