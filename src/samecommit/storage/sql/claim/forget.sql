-- Drops claim rows whose jobs have all ended. Grouped and late: a stale one is harmless. Locks claim rows by key.
DELETE FROM :"schema".claim
WHERE claim_id = ANY (:claim_ids::bigint[])
