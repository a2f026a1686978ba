-- The contract in SQL: what any language, trigger or psql may call. Changes only add.
--
-- SQLSTATEs of class SC are ours: SC001 unknown queue, SC002 unknown job, SC003 not in that state, SC004 bad argument.
-- `enqueue` is a BEGIN ATOMIC function: its names were resolved when it was made, so no search_path can redirect it.

CREATE FUNCTION :"schema".refuse(sqlstate_code text, message text, hint text DEFAULT '') RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = sqlstate_code, MESSAGE = message, HINT = hint;
END
$$;

-- Rings the bell of a queue for workers that sleep. A worker that wants to hear holds (or waits for) the slot's exclusive
-- lock; a producer that gets the shared lock keeps it to its commit, so a worker's lock request ends after that commit.
-- `setting samecommit.doorbell = off` is for two-phase commit, where NOTIFY is refused.
CREATE FUNCTION :"schema".ring(installation oid, queue_id int) RETURNS boolean
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT CASE
        WHEN current_setting('samecommit.doorbell', true) = 'off' THEN false
        WHEN pg_try_advisory_xact_lock_shared(hashoid(installation), queue_id % 64) THEN false
        ELSE pg_notify('samecommit_' || installation::text, (queue_id % 64)::text) IS NOT NULL
    END;
END;

-- Stores one job in the caller's transaction. Delays count from clock_timestamp(): now() is when the transaction began.
CREATE FUNCTION :"schema".enqueue(
    kind            text,
    payload         jsonb DEFAULT '{}',
    queue           text DEFAULT 'default',
    priority        int DEFAULT 0,
    run_at          timestamptz DEFAULT NULL,
    delay           interval DEFAULT NULL,
    max_attempts    int DEFAULT NULL,
    tags            text[] DEFAULT NULL,
    parent_id       bigint DEFAULT NULL,
    effect_key      text DEFAULT NULL,
    expires_at      timestamptz DEFAULT NULL,
    payload_version int DEFAULT 1,
    meta            jsonb DEFAULT NULL
) RETURNS TABLE (id bigint, created boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH target AS (
        SELECT q.id, q.tableoid AS installation, q.retention, q.max_attempts, due.run_at,
               due.run_at <= clock_timestamp() AS is_due, pg_column_size(enqueue.payload) > 2000 AS is_large
        FROM (SELECT coalesce(enqueue.run_at, clock_timestamp()) + coalesce(enqueue.delay, interval '0')) AS due (run_at)
        LEFT JOIN :"schema".queue AS q ON q.name = enqueue.queue
        WHERE q.id IS NOT NULL
           OR :"schema".refuse('SC001', format('unknown queue %L', enqueue.queue), 'make it first: samecommit queues create') = 0
    ), inserted AS (
        INSERT INTO :"schema".job (
            pos, run_at, expires_at, parent_id, queue_id, priority, max_attempts, retention, payload_version,
            kind, tags, effect_key, meta, payload)
        SELECT CASE WHEN is_due THEN nextval(:'schema.pos_seq') END, t.run_at, enqueue.expires_at, enqueue.parent_id, t.id,
               enqueue.priority, coalesce(enqueue.max_attempts, t.max_attempts), t.retention, enqueue.payload_version,
               enqueue.kind, enqueue.tags, enqueue.effect_key, enqueue.meta, CASE WHEN NOT t.is_large THEN enqueue.payload END
        FROM target AS t
        RETURNING job.id, job.created_at, job.pos, job.queue_id
    ), kept AS (
        INSERT INTO :"schema".body (job_id, created_at, payload)
        SELECT i.id, i.created_at, enqueue.payload
        FROM inserted AS i
        JOIN target AS t ON t.is_large
    )
    SELECT i.id, i.pos IS NULL OR :"schema".ring(t.installation, t.id) IS NOT NULL AS created
    FROM inserted AS i
    CROSS JOIN target AS t;
END;

-- Makes a queue, or leaves the one that is there. In a transaction of its own: a queue must not hang on a business write.
CREATE FUNCTION :"schema".create_queue(
    name text, retention text DEFAULT NULL, max_attempts int DEFAULT NULL
) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    INSERT INTO :"schema".queue (name, retention, max_attempts)
    VALUES (create_queue.name,
            coalesce(array_position(ARRAY['none', 'short', 'default', 'long'], create_queue.retention) - 1, 2),
            coalesce(create_queue.max_attempts, 20))
    ON CONFLICT (name) DO UPDATE
        SET retention = CASE WHEN create_queue.retention IS NULL THEN queue.retention ELSE excluded.retention END,
            max_attempts = CASE WHEN create_queue.max_attempts IS NULL THEN queue.max_attempts ELSE excluded.max_attempts END
        WHERE (create_queue.retention IS NOT NULL AND queue.retention <> excluded.retention)
           OR (create_queue.max_attempts IS NOT NULL AND queue.max_attempts <> excluded.max_attempts);
    SELECT q.id FROM :"schema".queue AS q WHERE q.name = create_queue.name;
END;

-- Ends a waiting, held or failed job as cancelled; asks a running one to stop. Returns what happened:
-- 'cancelled', 'asked' (its worker is told) or 'too late' (it had ended).
CREATE FUNCTION :"schema".cancel(job_id bigint, reason text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH gone AS (
        DELETE FROM :"schema".job AS j WHERE j.id = cancel.job_id AND j.claim_id IS NULL RETURNING j.*
    )
    INSERT INTO :"schema".job_history (
        id, run_at, created_at, claim_id, claimed_at, finished_at, parent_id, replay_of, queue_id, claims, priority, attempts,
        crashes, max_attempts, retention, payload_version, kind, state, tags, effect_key, last_error, decision, meta, payload)
    SELECT id, run_at, created_at, NULL, claimed_at, clock_timestamp(), parent_id, replay_of, queue_id, claims, priority,
           attempts, crashes, max_attempts, CASE retention WHEN 0 THEN 1 ELSE retention END, payload_version, kind, 'cancelled',
           tags, effect_key, coalesce(cancel.reason, last_error), decision, meta, payload
    FROM gone;
    IF FOUND THEN
        RETURN 'cancelled';
    END IF;
    INSERT INTO :"schema".cancellation AS c (job_id, reason)
    SELECT j.id, cancel.reason FROM :"schema".job AS j WHERE j.id = cancel.job_id
    ON CONFLICT ON CONSTRAINT cancellation_pkey DO UPDATE SET reason = coalesce(c.reason, excluded.reason);
    IF FOUND THEN
        PERFORM pg_notify('samecommit_' || (:'schema.queue'::regclass)::oid::text, 'cancel');
        RETURN 'asked';
    END IF;
    IF NOT EXISTS (SELECT FROM :"schema".job_history AS h WHERE h.id = cancel.job_id) THEN
        PERFORM :"schema".refuse('SC002', format('no job %s', cancel.job_id), 'it may have aged out of the history');
    END IF;
    RETURN 'too late';
END
$$;

-- Puts a waiting or failed job aside for a person. Returns 'held', 'running' (nothing was changed) or 'too late'.
CREATE FUNCTION :"schema".hold(
    job_id bigint, reason text, data jsonb DEFAULT NULL, until_at timestamptz DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE :"schema".job AS j
    SET state = 'held', pos = NULL, blocked_by = NULL, since_at = clock_timestamp(), hold_reason = hold.reason,
        hold_data = hold.data, hold_until_at = hold.until_at, decision = NULL
    WHERE j.id = hold.job_id AND j.claim_id IS NULL;
    IF FOUND THEN
        RETURN 'held';
    END IF;
    IF EXISTS (SELECT FROM :"schema".job AS j WHERE j.id = hold.job_id) THEN
        RETURN 'running';
    END IF;
    IF NOT EXISTS (SELECT FROM :"schema".job_history AS h WHERE h.id = hold.job_id) THEN
        PERFORM :"schema".refuse('SC002', format('no job %s', hold.job_id), 'it may have aged out of the history');
    END IF;
    RETURN 'too late';
END
$$;

-- Lets a held job go on, with a decision that the handler reads. Returns 'released', or the state it is in instead.
CREATE FUNCTION :"schema".release(job_id bigint, decision jsonb DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    released int;
BEGIN
    UPDATE :"schema".job AS j
    SET state = 'ready', pos = nextval(:'schema.pos_seq'), run_at = clock_timestamp(), since_at = NULL, hold_until_at = NULL,
        decision = release.decision, crashes = 0, lost = 0
    WHERE j.id = release.job_id AND j.state = 'held'
    RETURNING j.queue_id INTO released;
    IF FOUND THEN
        PERFORM :"schema".ring(:'schema.queue'::regclass, released);
        RETURN 'released';
    END IF;
    RETURN :"schema".state_of(release.job_id);
END
$$;

-- Where a job is: one of the states, running included. Raises SC002 when nothing has that id.
CREATE FUNCTION :"schema".state_of(job_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_state text;
BEGIN
    SELECT CASE WHEN j.claim_id IS NOT NULL THEN 'running' ELSE j.state END INTO found_state
    FROM :"schema".job AS j WHERE j.id = state_of.job_id;
    IF NOT FOUND THEN
        SELECT h.state INTO found_state FROM :"schema".job_history AS h WHERE h.id = state_of.job_id LIMIT 1;
    END IF;
    IF found_state IS NULL THEN
        PERFORM :"schema".refuse('SC002', format('no job %s', state_of.job_id), 'it may have aged out of the history');
    END IF;
    RETURN found_state;
END
$$;

-- Runs a failed job again under its own id, with its attempts counted from 0; makes a job for later due now; brings a
-- failed or cancelled job back from the history while its day is kept. Returns 'retried', or the state it is in instead.
CREATE FUNCTION :"schema".retry(job_id bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ready_queue int;
BEGIN
    UPDATE :"schema".job AS j
    SET state = 'ready', pos = nextval(:'schema.pos_seq'), run_at = clock_timestamp(), since_at = NULL, blocked_by = NULL,
        attempts = 0, crashes = 0, lost = 0
    WHERE j.id = retry.job_id AND j.claim_id IS NULL AND j.state IN ('failed', 'ready') AND j.pos IS NULL
    RETURNING j.queue_id INTO ready_queue;
    IF NOT FOUND THEN
        WITH back AS (
            DELETE FROM :"schema".job_history AS h
            WHERE h.id = retry.job_id AND h.state IN ('failed', 'cancelled')
            RETURNING h.*
        )
        INSERT INTO :"schema".job (
            id, pos, created_at, parent_id, replay_of, queue_id, claims, priority, max_attempts, retention, payload_version,
            kind, tags, effect_key, last_error, decision, meta, payload)
        SELECT id, nextval(:'schema.pos_seq'), created_at, parent_id, replay_of, queue_id, claims, priority, max_attempts,
               retention, payload_version, kind, tags, effect_key, last_error, decision, meta, payload
        FROM back
        RETURNING job.queue_id INTO ready_queue;
    END IF;
    IF ready_queue IS NULL THEN
        RETURN :"schema".state_of(retry.job_id);
    END IF;
    PERFORM :"schema".ring(:'schema.queue'::regclass, ready_queue);
    RETURN 'retried';
END
$$;

-- New jobs from old ones, linked by replay_of; the old ones stay as they are. `patch` is merged over each payload.
-- A replay gets an effect key of its own (its effects are meant to happen again) unless `keep_effect_key`.
CREATE FUNCTION :"schema".replay(
    job_ids bigint[], patch jsonb DEFAULT NULL, queue text DEFAULT NULL, keep_effect_key boolean DEFAULT false
) RETURNS TABLE (id bigint, replay_of bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH old AS (
        SELECT DISTINCT ON (o.id) o.*
        FROM (
            SELECT j.id, j.parent_id, j.queue_id, j.priority, j.max_attempts, j.retention, j.payload_version, j.kind, j.tags,
                   j.effect_key, j.meta, j.payload, j.created_at
            FROM :"schema".job AS j WHERE j.id = ANY (replay.job_ids)
            UNION ALL
            SELECT h.id, h.parent_id, h.queue_id, h.priority, h.max_attempts, h.retention, h.payload_version, h.kind, h.tags,
                   h.effect_key, h.meta, h.payload, h.created_at
            FROM :"schema".job_history AS h WHERE h.id = ANY (replay.job_ids)
        ) AS o
    ), filled AS (
        SELECT old.*, coalesce(old.payload, b.payload) || coalesce(replay.patch, '{}') AS whole,
               nextval(pg_get_serial_sequence(:'schema.job', 'id')) AS new_id, clock_timestamp() AS new_created_at,
               coalesce((SELECT q.id FROM :"schema".queue AS q WHERE q.name = replay.queue), old.queue_id) AS new_queue
        FROM old
        LEFT JOIN :"schema".body AS b ON old.payload IS NULL AND b.job_id = old.id AND b.created_at = old.created_at
    ), kept AS (
        INSERT INTO :"schema".body (job_id, created_at, payload)
        SELECT new_id, new_created_at, whole FROM filled WHERE pg_column_size(whole) > 2000
    ), inserted AS (
        INSERT INTO :"schema".job (
            id, pos, created_at, parent_id, replay_of, queue_id, priority, max_attempts, retention, payload_version,
            kind, tags, effect_key, meta, payload)
        SELECT f.new_id, nextval(:'schema.pos_seq'), f.new_created_at, f.parent_id, f.id, f.new_queue, f.priority,
               f.max_attempts, f.retention, f.payload_version, f.kind, f.tags,
               CASE WHEN replay.keep_effect_key THEN coalesce(f.effect_key, 'job:' || f.id) END, f.meta,
               CASE WHEN pg_column_size(f.whole) <= 2000 THEN f.whole END
        FROM filled AS f
        RETURNING job.id, job.replay_of, job.queue_id
    )
    SELECT i.id, i.replay_of
    FROM inserted AS i
    WHERE :"schema".ring(:'schema.queue'::regclass, i.queue_id) IS NOT NULL;
END;

-- Stops workers from claiming from a queue; what runs goes on. Lives in the database: a restart does not lose it.
CREATE FUNCTION :"schema".pause(queue text, reason text DEFAULT NULL, until_at timestamptz DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE :"schema".queue AS q
    SET paused_at = clock_timestamp(), pause_reason = pause.reason, paused_until = pause.until_at
    WHERE q.name = pause.queue;
    IF NOT FOUND THEN
        PERFORM :"schema".refuse('SC001', format('unknown queue %L', pause.queue), 'samecommit queues lists them');
    END IF;
END
$$;

CREATE FUNCTION :"schema".resume(queue text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    resumed int;
BEGIN
    UPDATE :"schema".queue AS q
    SET paused_at = NULL, pause_reason = NULL, paused_until = NULL
    WHERE q.name = resume.queue
    RETURNING q.id INTO resumed;
    IF NOT FOUND THEN
        PERFORM :"schema".refuse('SC001', format('unknown queue %L', resume.queue), 'samecommit queues lists them');
    END IF;
    PERFORM :"schema".ring(:'schema.queue'::regclass, resumed);
    PERFORM pg_notify('samecommit_' || (:'schema.queue'::regclass)::oid::text, 'queues');
END
$$;

-- Waits up to a second for the exclusive lock of a bell slot; the error of not getting it stays in here, out of the log.
CREATE FUNCTION :"schema".take_bell(slot int) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM pg_advisory_lock(hashoid(:'schema.queue'::regclass), slot);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
