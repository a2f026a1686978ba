-- Ends attempts whose job goes on: retry, snooze, rate limit, give-back (ready), hold (held) and failure (failed).
-- Exact (id, claim_id) pairs, locked with SKIP LOCKED; relies on the primary key. Each is written to `attempt` when it has
-- an outcome to tell; a give-back (NULL outcome) leaves no trace and takes back its claim count: one of :firsts goes to the head
-- of its lane, since it has waited already, and a suspect stays one. Rings for what is due now.
-- A failed job gives its unique key back, unless a window keeps it for a retry. A crash is that of a child process, which cost nobody else anything.
WITH mine AS (
    SELECT wanted.*, j.claimed_at, j.claims, CASE WHEN wanted.outcome IS NULL THEN j.blocked_by END AS still_blocked_by,
           coalesce(wanted.due_at, clock_timestamp() + make_interval(secs => greatest(wanted.delay, 0))) AS next_at,
           coalesce(wanted.due_at <= clock_timestamp(), wanted.delay <= 0) AS is_due
    FROM unnest(:ids::bigint[], :claim_ids::bigint[], :outcomes::text[], :states::text[], :delays::float8[], :run_ats::timestamptz[],
                :spends::boolean[], :errors::text[], :hold_datas::jsonb[], :hold_untils::timestamptz[], :records::jsonb[],
                :firsts::boolean[])
        AS wanted (id, claim_id, outcome, state, delay, due_at, spends, error, hold_data, hold_until_at, record, is_first)
    CROSS JOIN LATERAL (
        SELECT job.claimed_at, job.claims, job.blocked_by
        FROM :"schema".job
        WHERE job.id = wanted.id AND job.claim_id = wanted.claim_id
        FOR UPDATE SKIP LOCKED
    ) AS j
), settled AS (
    UPDATE :"schema".job
    SET state = mine.state,
        pos = CASE WHEN mine.state = 'ready' AND mine.is_due AND mine.still_blocked_by IS NULL
                   THEN nextval(:'schema.pos_seq') - CASE WHEN mine.is_first THEN 4611686018427387904 ELSE 0 END END,
        run_at = CASE WHEN mine.state = 'ready' THEN mine.next_at ELSE job.run_at END,
        since_at = CASE WHEN mine.state <> 'ready' THEN clock_timestamp() END,
        blocked_by = mine.still_blocked_by,
        claim_id = NULL,
        claims = job.claims - CASE WHEN mine.outcome IS NULL THEN 1 ELSE 0 END,
        attempts = job.attempts + CASE WHEN mine.spends THEN 1 ELSE 0 END,
        crashes = job.crashes + CASE WHEN mine.outcome = 'crashed' THEN 1 ELSE 0 END,
        lost = CASE WHEN mine.outcome IS NULL THEN job.lost ELSE 0 END,
        last_error = CASE WHEN mine.outcome IS NULL OR mine.state = 'held' THEN job.last_error
                          ELSE coalesce(mine.error, job.last_error) END,
        hold_reason = CASE WHEN mine.state = 'held' THEN mine.error ELSE job.hold_reason END,
        hold_data = CASE WHEN mine.state = 'held' THEN mine.hold_data ELSE job.hold_data END,
        hold_until_at = CASE WHEN mine.state = 'held' THEN mine.hold_until_at END,
        decision = CASE WHEN mine.state = 'held' THEN NULL ELSE job.decision END
    FROM mine
    WHERE job.id = mine.id AND job.claim_id = mine.claim_id
    RETURNING job.id, job.pos, job.queue_id, job.state, job.unique_scope, job.unique_key
), released AS (
    DELETE FROM :"schema".unique_key AS k
    USING settled AS e
    WHERE e.unique_key IS NOT NULL AND e.state = 'failed' AND k.scope = e.unique_scope AND k.key = e.unique_key AND k.job_id = e.id
      AND (k.until_at IS NULL OR k.until_at <= clock_timestamp())  -- else a retry goes on with the window
), audited AS (
    INSERT INTO :"schema".attempt AS a (job_id, claim_id, claimed_at, ended_at, lease_id, number, outcome, error, record)
    SELECT mine.id, mine.claim_id, mine.claimed_at, clock_timestamp(), :lease_id::bigint, mine.claims, mine.outcome,
           mine.error, mine.record
    FROM mine
    WHERE mine.outcome IS NOT NULL
    ON CONFLICT (job_id, claim_id, claimed_at) DO UPDATE
        SET ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error,
            record = CASE WHEN excluded.record IS NULL THEN a.record ELSE coalesce(a.record, '{}') || excluded.record END
)
SELECT id, pos IS NULL OR :"schema".ring(:'schema.queue'::regclass, queue_id) IS NOT NULL
FROM settled
