-- Ends a lease at once, with its claim rows. What still runs under it will be found by the reaper. Locks by key.
WITH gone AS (
    DELETE FROM :"schema".worker WHERE lease_id = :lease_id::bigint
)
DELETE FROM :"schema".claim AS c
WHERE c.lease_id = :lease_id::bigint
  AND NOT EXISTS (SELECT FROM unnest(c.ids) AS held (id)
                  JOIN :"schema".job AS j ON j.id = held.id AND j.claim_id = c.claim_id)
