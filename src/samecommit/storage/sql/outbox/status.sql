-- How far each position is, through the contract's view. No locks.
SELECT v.* FROM :"schema".destinations AS v ORDER BY v.destination, v.shard
