-- The newest migration applied. No locks.
SELECT coalesce(max(version), 0) FROM :"schema".migration
