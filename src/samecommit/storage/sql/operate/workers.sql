-- The workers that have not ended: living ones, and those whose lease is over and not yet cleared away. No locks.
SELECT w.lease_id, w.host, w.pid, w.version, CASE WHEN w.expires_at > clock_timestamp() THEN w.state ELSE 'dead' END AS state,
       w.running, w.concurrency, w.queues, w.kinds, w.started_at, w.beat_at, w.expires_at, w.note
FROM :"schema".worker AS w
ORDER BY w.host, w.pid, w.started_at
