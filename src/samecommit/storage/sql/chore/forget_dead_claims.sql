-- Drops claim rows of dead leases once none of their jobs is claimed by them any more. Locks claim rows, SKIP LOCKED.
DELETE FROM :"schema".claim
WHERE claim_id = ANY (ARRAY(
    SELECT c.claim_id
    FROM :"schema".claim AS c
    WHERE NOT EXISTS (SELECT FROM :"schema".worker AS w WHERE w.lease_id = c.lease_id)
      AND NOT EXISTS (SELECT FROM unnest(c.ids) AS held (id)
                      JOIN :"schema".job AS j ON j.id = held.id AND j.claim_id = c.claim_id)
    ORDER BY c.claimed_at
    LIMIT :room::int
    FOR UPDATE SKIP LOCKED))
