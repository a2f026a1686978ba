-- What people and programs may read. `state` is computed: filter by id, or use `running`, `failure_groups` and `queues`.

CREATE VIEW :"schema".jobs AS
SELECT j.id, q.name AS queue, j.kind,
       CASE WHEN j.claim_id IS NOT NULL THEN 'running' ELSE j.state END AS state,
       CASE WHEN j.state = 'ready' AND j.claim_id IS NULL AND j.pos IS NULL AND j.blocked_by IS NULL
            THEN CASE WHEN j.attempts > 0 THEN 'retrying' ELSE 'scheduled' END
            WHEN j.claim_id IS NOT NULL THEN 'running' ELSE j.state END AS shown_as,
       j.priority, j.run_at, j.created_at, j.claimed_at, NULL::timestamptz AS finished_at, j.expires_at,
       (SELECT w.expires_at FROM :"schema".claim AS c JOIN :"schema".worker AS w USING (lease_id)
        WHERE c.claim_id = j.claim_id) AS leased_until,
       j.claims, j.attempts, j.crashes, j.max_attempts, j.tags, j.parent_id, j.replay_of, j.effect_key, j.unique_scope, j.unique_key,
       j.last_error,
       j.hold_reason, j.hold_data, j.hold_until_at, j.decision, j.blocked_by, j.payload_version, j.meta, NULL::jsonb AS result,
       coalesce(j.payload, (SELECT b.payload FROM :"schema".body AS b
                            WHERE j.payload IS NULL AND b.job_id = j.id AND b.created_at = j.created_at)) AS payload
FROM :"schema".job AS j
JOIN :"schema".queue AS q ON q.id = j.queue_id
UNION ALL
SELECT h.id, q.name, h.kind, h.state, h.state, h.priority, h.run_at, h.created_at, h.claimed_at, h.finished_at, NULL, NULL,
       h.claims, h.attempts, h.crashes, h.max_attempts, h.tags, h.parent_id, h.replay_of, h.effect_key, h.unique_scope,
       h.unique_key, h.last_error,
       NULL, NULL, NULL, h.decision, NULL, h.payload_version, h.meta, h.result,
       coalesce(h.payload, (SELECT b.payload FROM :"schema".body AS b
                            WHERE h.payload IS NULL AND b.job_id = h.id AND b.created_at = h.created_at))
FROM :"schema".job_history AS h
JOIN :"schema".queue AS q ON q.id = h.queue_id;

CREATE VIEW :"schema".running AS
SELECT j.id, q.name AS queue, j.kind, j.claimed_at, clock_timestamp() - j.claimed_at AS running_for, j.attempts, j.claims,
       w.expires_at AS leased_until, w.host, w.pid, c.lease_id, c.claim_id,
       (SELECT a.progress FROM :"schema".attempt AS a
        WHERE a.job_id = j.id AND a.claim_id = c.claim_id AND a.claimed_at = j.claimed_at) AS progress
FROM :"schema".claim AS c
CROSS JOIN LATERAL unnest(c.ids) AS held (id)
JOIN :"schema".job AS j ON j.id = held.id AND j.claim_id = c.claim_id
JOIN :"schema".queue AS q ON q.id = j.queue_id
LEFT JOIN :"schema".worker AS w USING (lease_id);

CREATE VIEW :"schema".attempts AS
SELECT a.job_id, a.number, a.claimed_at, a.ended_at, a.outcome, a.error, a.record, a.progress, a.claim_id, a.lease_id
FROM :"schema".attempt AS a
UNION ALL
SELECT h.id, h.claims, h.claimed_at, h.finished_at, h.state, NULL, NULL, NULL, h.claim_id, NULL
FROM :"schema".job_history AS h
WHERE h.claim_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM :"schema".attempt AS a
                  WHERE a.job_id = h.id AND a.claim_id = h.claim_id AND a.claimed_at = h.claimed_at);

-- Of the newest 10,000 failed jobs, what they died of. The error's first line without its numbers makes the group.
CREATE VIEW :"schema".failure_groups AS
SELECT kind, cause, count(*) AS jobs, min(since_at) AS first_at, max(since_at) AS last_at, max(id) AS newest_id
FROM (
    SELECT j.kind, j.since_at, j.id, regexp_replace(split_part(left(j.last_error, 400), E'\n', 1), '\d+', '#', 'g') AS cause
    FROM :"schema".job AS j
    WHERE j.state = 'failed'
    ORDER BY j.since_at DESC
    LIMIT 10000
) AS newest
GROUP BY kind, cause;

CREATE VIEW :"schema".queues AS
SELECT q.name, q.paused_at IS NOT NULL AND coalesce(q.paused_until > clock_timestamp(), true) AS is_paused,
       q.paused_at, q.paused_until, q.pause_reason, (ARRAY['none', 'short', 'default', 'long'])[q.retention + 1] AS retention,
       q.max_attempts, q.created_at,
       (SELECT count(*) FROM :"schema".worker AS w
        WHERE (q.name = ANY (w.queues) OR '*' = ANY (w.queues)) AND w.expires_at > clock_timestamp()) AS workers
FROM :"schema".queue AS q;
