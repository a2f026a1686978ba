-- The replays that were asked for, the newest first, through the contract's view. No locks.
SELECT v.* FROM :"schema".replays AS v
WHERE :replay::int IS NULL OR v.id = :replay::int
ORDER BY v.id DESC
LIMIT :room::int
