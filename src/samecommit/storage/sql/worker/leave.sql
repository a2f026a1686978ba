-- Ends a lease at once, with its claim rows and its chores: what it was in the middle of is due for somebody else now. What
-- still runs under it will be found by the reaper. Locks by key.
WITH gone AS (
    DELETE FROM :"schema".worker WHERE lease_id = :lease_id::bigint
), freed AS (
    UPDATE :"schema".chore
    SET due_at = clock_timestamp()
    WHERE taken_by = :lease_id::bigint AND due_at > clock_timestamp() AND coalesce(finished_at < started_at, true)
)
DELETE FROM :"schema".claim AS c
WHERE c.lease_id = :lease_id::bigint
  AND NOT EXISTS (SELECT FROM unnest(c.ids) AS held (id)
                  JOIN :"schema".job AS j ON j.id = held.id AND j.claim_id = c.claim_id)
