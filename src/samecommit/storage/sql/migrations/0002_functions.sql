-- The contract in SQL: what any language, trigger or psql may call. Changes only add.
--
-- SQLSTATEs of class SC are ours: SC001 unknown queue, SC002 unknown job, SC004 bad argument, SC005 unique key taken,
-- SC006 unknown destination.
-- What runs with its owner's rights is BEGIN ATOMIC (names resolved when it was made) or sets its search_path: no object
-- of the caller can stand in for one of ours. Nobody may call anything here until a role is granted it.

-- The version of this contract: it grows when something is added; nothing is taken away or changes its meaning.
CREATE FUNCTION :"schema".contract_version() RETURNS int
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT 1;
END;

CREATE FUNCTION :"schema".refuse(sqlstate_code text, message text, hint text DEFAULT '') RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = sqlstate_code, MESSAGE = message, HINT = hint;
END
$$;

-- Where this is: the server's identifier, which a failover keeps and a restore into another server does not, and the database's
-- number, which no copy in the same server shares.
CREATE FUNCTION :"schema".here() RETURNS jsonb
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT jsonb_build_object('system', c.system_identifier::text, 'database', d.oid::bigint)
    FROM pg_control_system() AS c
    CROSS JOIN pg_database AS d
    WHERE d.datname = current_database();
END;

INSERT INTO :"schema".setting (name, value) SELECT 'home', :"schema".here();

-- Why nobody works here: the installation's home is another database, of which this one is a copy. NULL at home. Without a home
-- on record (a template of test databases) every place is home.
CREATE FUNCTION :"schema".away() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT format('this database (number %s of server %s) is a copy: it was restored or cloned from number %s of server %s, and '
                  'nothing is claimed, cleared away or relayed here until it is adopted (samecommit adopt)',
                  h.here ->> 'database', h.here ->> 'system', s.value ->> 'database', s.value ->> 'system')
    FROM :"schema".setting AS s
    CROSS JOIN (SELECT :"schema".here() AS here) AS h
    WHERE s.name = 'home' AND s.value <> h.here;
END;

-- Makes this database the installation's home; false when it is already. A copy beside its original gets a name of its own, so
-- that what both do has different effect keys. The outbox counts its windows anew: destinations may be further than this copy.
CREATE FUNCTION :"schema".adopt(is_copy boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE :"schema".setting AS s
    SET value = :"schema".here()
    WHERE s.name = 'home' AND s.value <> :"schema".here();
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF is_copy THEN
        UPDATE :"schema".setting AS s SET value = to_jsonb(gen_random_uuid()) WHERE s.name = 'installation';
    END IF;
    UPDATE :"schema".setting AS s SET value = s.value || '{"timeline": null}' WHERE s.name = 'outbox_line';
    RETURN true;
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

-- Unique keys. A key belongs to a scope (the kind, unless the caller names another) and is held by one job at a time. It is
-- taken by inserting its row, so a rival that has not committed is waited for: no one is told "there is one already" of a
-- job that is then rolled back. Whoever only finds it taken by a live job keeps no lock, so that neither that job's end nor
-- other callers wait. Callers lock keys in order of scope and key, and with each key the job that it replaces; what ends a
-- job locks the job, then its key, which nobody else locks while the job lives.

-- How a key is stored: a long one as its digest, since an index has no room for it. A stored key stays as it is.
CREATE FUNCTION :"schema".stored_key(key text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN octet_length(stored_key.key) <= 200 THEN stored_key.key
                ELSE 'sha256:' || encode(sha256(convert_to(stored_key.key, 'UTF8')), 'hex') END;
END;

-- Takes a key for a job, and returns who holds it now: that job, or the live one that had it before. Waits for a rival.
CREATE FUNCTION :"schema".take_key(scope text, key text, job_id bigint, until_at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holder  bigint;
    is_held boolean;
BEGIN
    LOOP
        INSERT INTO :"schema".unique_key AS k (scope, key, job_id, until_at)
        VALUES (take_key.scope, take_key.key, take_key.job_id, take_key.until_at)
        ON CONFLICT ON CONSTRAINT unique_key_pkey DO NOTHING;
        IF FOUND THEN
            RETURN take_key.job_id;
        END IF;
        FOR turn IN 1..2 LOOP
            -- while its job is there, that decides; then the window: a failed job keeps it for a retry, and nobody waits for it
            SELECT k.job_id, coalesce((SELECT j.state <> 'failed' FROM :"schema".job AS j WHERE j.id = k.job_id),
                                      k.until_at > clock_timestamp(), false)
            INTO holder, is_held
            FROM :"schema".unique_key AS k
            WHERE k.scope = take_key.scope AND k.key = take_key.key;
            EXIT WHEN NOT FOUND;
            IF is_held THEN
                RETURN holder;
            ELSIF turn = 2 THEN
                UPDATE :"schema".unique_key AS k
                SET job_id = take_key.job_id,  -- a window that is over goes: `unique/sweep` would take the key of a job that it saw failed
                    until_at = CASE WHEN k.job_id = take_key.job_id AND k.until_at > clock_timestamp()
                                    THEN coalesce(take_key.until_at, k.until_at) ELSE take_key.until_at END
                WHERE k.scope = take_key.scope AND k.key = take_key.key;
                RETURN take_key.job_id;
            END IF;
            -- it is free; lock it, and look again in case somebody else took it or brought its job back
            PERFORM FROM :"schema".unique_key AS k
            WHERE k.scope = take_key.scope AND k.key = take_key.key
            FOR UPDATE;
        END LOOP;
    END LOOP;
END
$$;

-- Takes the keys of many jobs by one insert, in the order of scope and key; the holders, in the order given. Raises SCKEY
-- when a key was given back in between, for its turn in the order has passed: then all that was taken must be let go.
CREATE FUNCTION :"schema".take_keys(scopes text[], keys text[], job_ids bigint[], until_ats timestamptz[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken   bigint;
    holders bigint[];
    is_held boolean;
BEGIN
    INSERT INTO :"schema".unique_key AS k (scope, key, job_id, until_at)
    SELECT w.scope, w.key, w.job_id, w.until_at
    FROM (
        SELECT DISTINCT ON (u.scope COLLATE "C", u.key COLLATE "C") u.scope, u.key, u.job_id, u.until_at
        FROM unnest(scopes, keys, job_ids, until_ats) WITH ORDINALITY AS u (scope, key, job_id, until_at, n)
        WHERE u.key IS NOT NULL
        ORDER BY u.scope COLLATE "C", u.key COLLATE "C", u.n
    ) AS w
    ORDER BY w.scope COLLATE "C", w.key COLLATE "C"
    ON CONFLICT ON CONSTRAINT unique_key_pkey DO NOTHING;
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken = cardinality(array_remove(keys, NULL)) THEN
        RETURN job_ids;
    END IF;
    SELECT array_agg(coalesce(k.job_id, w.job_id) ORDER BY w.n),
           bool_and(w.key IS NULL OR coalesce(
               k.job_id = w.first_id
               OR coalesce((SELECT j.state <> 'failed' FROM :"schema".job AS j WHERE j.id = k.job_id),
                           k.until_at > clock_timestamp()), false))
    INTO holders, is_held
    FROM (
        SELECT u.*, first_value(u.job_id) OVER (PARTITION BY u.scope COLLATE "C", u.key COLLATE "C" ORDER BY u.n) AS first_id
        FROM unnest(scopes, keys, job_ids) WITH ORDINALITY AS u (scope, key, job_id, n)
    ) AS w
    LEFT JOIN :"schema".unique_key AS k ON k.scope = w.scope AND k.key = w.key;
    IF NOT is_held THEN
        RAISE EXCEPTION USING ERRCODE = 'SCKEY';
    END IF;
    RETURN holders;
END
$$;

-- Takes the keys of many jobs, in the one order that cannot deadlock with another batch; the holders, in the order given.
-- By one insert, or (when a key was given back meanwhile, and to tell which key a snapshot is too old for) one by one.
-- The keys are as the caller wrote them; rows without one are left out.
CREATE FUNCTION :"schema".acquire_keys(
    scopes text[], keys text[], job_ids bigint[], until_ats timestamptz[] DEFAULT NULL
) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept_keys text[] := ARRAY(SELECT :"schema".stored_key(u.key) FROM unnest(keys) WITH ORDINALITY AS u (key, n) ORDER BY u.n);
    holders   bigint[] := job_ids;
    wanted    record;
    scope     text;
    key       text;
    holder    bigint;
BEGIN
    BEGIN
        RETURN :"schema".take_keys(scopes, kept_keys, job_ids, until_ats);
    EXCEPTION WHEN SQLSTATE 'SCKEY' OR serialization_failure THEN
        NULL;  -- the inner block has let go of what it took
    END;
    FOR wanted IN
        SELECT w.scope COLLATE "C" AS scope, w.key COLLATE "C" AS key, w.job_id, w.until_at, w.n
        FROM unnest(scopes, kept_keys, job_ids, until_ats) WITH ORDINALITY AS w (scope, key, job_id, until_at, n)
        WHERE w.key IS NOT NULL
        ORDER BY 1, 2, w.n
    LOOP
        IF (wanted.scope, wanted.key) IS DISTINCT FROM (scope, key) THEN
            scope := wanted.scope;
            key := wanted.key;
            holder := :"schema".take_key(scope, key, wanted.job_id, wanted.until_at);
        END IF;
        holders[wanted.n] := holder;
    END LOOP;
    RETURN holders;
EXCEPTION WHEN serialization_failure THEN
    RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = :"schema".too_late_for_key(scope, key),
                          HINT = 'roll back and repeat the whole transaction, or use READ COMMITTED';
END
$$;

CREATE FUNCTION :"schema".too_late_for_key(scope text, key text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT format('unique key %L of %L was taken after this %s transaction began, so it cannot see by whom',
                  left(too_late_for_key.key, 100), too_late_for_key.scope, upper(current_setting('transaction_isolation')));
END;

-- Gives a key back; that of a failed job stays for a retry while its window lasts. A function and not part of the statement that
-- ends the job: that one's snapshot may be from before a retry brought the job back, with its key.
CREATE FUNCTION :"schema".give_back_key(job_id bigint, scope text, key text, has_failed boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM :"schema".unique_key AS k
    WHERE k.scope = give_back_key.scope AND k.key = give_back_key.key AND k.job_id = give_back_key.job_id
      AND NOT (has_failed AND coalesce(k.until_at > clock_timestamp(), false));
    RETURN FOUND;
END
$$;

-- Gives a waiting job another payload and another time, and a place at the end of the line if it is due. False when it is
-- not waiting (any more): it runs, is held, or has ended.
CREATE FUNCTION :"schema".replace_waiting(
    job_id bigint, payload jsonb, payload_version int, run_at timestamptz, priority int, tags text[],
    expires_at timestamptz, meta jsonb
) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed  record;
    is_large boolean := pg_column_size(payload) > 2000;
BEGIN
    UPDATE :"schema".job AS j
    SET payload = CASE WHEN NOT is_large THEN replace_waiting.payload END, payload_version = replace_waiting.payload_version,
        run_at = replace_waiting.run_at, priority = replace_waiting.priority, tags = replace_waiting.tags,
        expires_at = replace_waiting.expires_at, meta = replace_waiting.meta,
        pos = CASE WHEN j.blocked_by IS NULL AND replace_waiting.run_at <= clock_timestamp()
                   THEN nextval(:'schema.pos_seq') END
    WHERE j.id = replace_waiting.job_id AND j.state = 'ready' AND j.claim_id IS NULL
    RETURNING j.created_at, j.queue_id, j.pos INTO changed;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF is_large THEN
        INSERT INTO :"schema".body AS b (job_id, created_at, payload)
        VALUES (replace_waiting.job_id, changed.created_at, replace_waiting.payload)
        ON CONFLICT ON CONSTRAINT body_pkey DO UPDATE SET payload = excluded.payload;
    ELSE
        DELETE FROM :"schema".body AS b WHERE b.job_id = replace_waiting.job_id AND b.created_at = changed.created_at;
    END IF;
    IF changed.pos IS NOT NULL THEN
        PERFORM :"schema".ring(:'schema.queue'::regclass, changed.queue_id);
    END IF;
    RETURN true;
END
$$;

CREATE TYPE :"schema".key_answer AS (holder bigint, replaced boolean);

-- Finds out which job a keyed enqueue comes to: the new one, or the one that holds the key, replaced where that is wanted.
CREATE FUNCTION :"schema".place_keyed(
    scope text, key text, job_id bigint, unique_for interval, on_conflict text, payload jsonb, payload_version int,
    run_at timestamptz, priority int, tags text[], expires_at timestamptz, meta jsonb
) RETURNS :"schema".key_answer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer   :"schema".key_answer;
    kept_key text := :"schema".stored_key(key);
    until_at timestamptz := clock_timestamp() + unique_for;
BEGIN
    IF on_conflict IS NULL OR on_conflict NOT IN ('existing', 'replace', 'reject') THEN
        PERFORM :"schema".refuse('SC004', format('on_conflict is %L', on_conflict), 'give existing, replace or reject');
    ELSIF key = '' OR scope = '' OR unique_for <= interval '0' THEN
        PERFORM :"schema".refuse('SC004', format('unique key %L, scope %L, window %s', left(key, 100), scope,
                                                 coalesce(unique_for::text, 'none')),
                                 'give a key and a scope that are not empty, and a window above 0');
    END IF;
    LOOP
        IF current_setting('transaction_isolation') = 'read committed' THEN
            answer.holder := :"schema".take_key(scope, kept_key, job_id, until_at);
        ELSE  -- with the explanation of what can go wrong there
            answer.holder := (:"schema".acquire_keys(ARRAY[scope], ARRAY[key], ARRAY[job_id], ARRAY[until_at]))[1];
        END IF;
        answer.replaced := false;
        IF answer.holder = job_id OR on_conflict = 'existing' THEN
            RETURN answer;
        ELSIF on_conflict = 'reject' THEN
            PERFORM :"schema".refuse('SC005', format('unique key %L of %L is taken by job %s', left(key, 100), scope, answer.holder),
                                     'on_conflict => ''existing'' returns that job instead');
        END IF;
        answer.replaced := :"schema".replace_waiting(
            answer.holder, payload, payload_version, run_at, priority, tags, expires_at, meta);
        IF answer.replaced OR EXISTS (SELECT FROM :"schema".unique_key AS k
                                      WHERE k.scope = place_keyed.scope AND k.key = kept_key AND k.job_id = answer.holder) THEN
            RETURN answer;
        END IF;
    END LOOP;
END
$$;

-- Whether a queue or a task may be named so.
CREATE FUNCTION :"schema".is_name(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT is_name.name !~ '[\u0001-\u001f\u007f-\u009f]' AND is_name.name = btrim(is_name.name)
           AND length(is_name.name) BETWEEN 1 AND 200;
END;

-- Refuses what cannot be a name, and says where.
CREATE FUNCTION :"schema".check_name(what text, name text, place text DEFAULT '') RETURNS boolean
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT :"schema".is_name(check_name.name)
           OR :"schema".refuse('SC004', format('%s%s %L', check_name.place, check_name.what, check_name.name),
                               'give 1 to 200 characters, no control characters, no spaces at the ends') = 0;
END;

-- Refuses by name a number that makes no sense, and says where. The tables do not: see `job`.
CREATE FUNCTION :"schema".check_numbers(priority int, max_attempts int, payload_version int, place text DEFAULT '') RETURNS boolean
LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT bool_and(n.value IS NULL OR n.value BETWEEN n.lowest AND n.highest
                    OR :"schema".refuse('SC004', format('%s%s is %s', check_numbers.place, n.name, n.value),
                                        format('give %s to %s', n.lowest, n.highest)) = 0)
    FROM (VALUES ('priority', check_numbers.priority, -100, 100), ('max_attempts', check_numbers.max_attempts, 1, 32767),
                 ('payload_version', check_numbers.payload_version, 0, 32767)) AS n (name, value, lowest, highest);
END;

-- Stores one job in the caller's transaction. Delays count from clock_timestamp(): now() is when the transaction began.
-- With a unique key it may come to a job that is there already: then `created` is false, and `replaced` tells whether that
-- one waited and has taken the new payload and time.
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
    meta            jsonb DEFAULT NULL,
    unique_key      text DEFAULT NULL,
    unique_scope    text DEFAULT NULL,
    unique_for      interval DEFAULT NULL,
    on_conflict     text DEFAULT 'existing',
    OUT id bigint, OUT created boolean, OUT replaced boolean
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    scope   text;
    answer  :"schema".key_answer;
    born_at timestamptz;
BEGIN
    -- Few statements and expressions: each is set up again in every transaction, at a microsecond or more.
    IF enqueue.unique_key IS NOT NULL OR enqueue.unique_scope IS NOT NULL OR enqueue.unique_for IS NOT NULL
       OR enqueue.priority NOT BETWEEN -100 AND 100 OR enqueue.max_attempts NOT BETWEEN 1 AND 32767
       OR enqueue.payload_version NOT BETWEEN 0 AND 32767 OR NOT :"schema".is_name(enqueue.kind) THEN
        PERFORM :"schema".check_name('kind', enqueue.kind),
                :"schema".check_numbers(enqueue.priority, enqueue.max_attempts, enqueue.payload_version);
        IF enqueue.unique_key IS NULL THEN
            PERFORM :"schema".refuse('SC004', 'unique_scope or unique_for without unique_key', 'give unique_key as well');
        END IF;
        enqueue.run_at := coalesce(enqueue.run_at, clock_timestamp()) + coalesce(enqueue.delay, interval '0');
        enqueue.delay := NULL;
        scope := coalesce(enqueue.unique_scope, enqueue.kind);
        enqueue.id := nextval(:'schema.job_id_seq');
        answer := :"schema".place_keyed(
            scope, enqueue.unique_key, enqueue.id, enqueue.unique_for, enqueue.on_conflict, enqueue.payload,
            enqueue.payload_version, enqueue.run_at, enqueue.priority, enqueue.tags, enqueue.expires_at, enqueue.meta);
        IF answer.holder <> enqueue.id THEN
            enqueue.id := answer.holder;
            enqueue.created := false;
            enqueue.replaced := answer.replaced;
            RETURN;
        END IF;
    END IF;
    INSERT INTO :"schema".job AS j (
        id, pos, run_at, expires_at, parent_id, queue_id, priority, max_attempts, retention, payload_version,
        kind, tags, effect_key, unique_scope, unique_key, meta, payload)
    SELECT coalesce(enqueue.id, nextval(:'schema.job_id_seq')),
           CASE WHEN due.at <= clock_timestamp() THEN nextval(:'schema.pos_seq') END, due.at, enqueue.expires_at,
           enqueue.parent_id, q.id, enqueue.priority, coalesce(enqueue.max_attempts, q.max_attempts), q.retention,
           enqueue.payload_version, enqueue.kind, enqueue.tags, enqueue.effect_key, scope,
           CASE WHEN scope IS NOT NULL THEN :"schema".stored_key(enqueue.unique_key) END, enqueue.meta,
           CASE WHEN pg_column_size(enqueue.payload) <= 2000 THEN enqueue.payload END
    FROM :"schema".queue AS q
    CROSS JOIN (SELECT coalesce(enqueue.run_at, clock_timestamp()) + coalesce(enqueue.delay, interval '0')) AS due (at)
    WHERE q.name = enqueue.queue
    RETURNING j.id, j.created_at, j.pos IS NULL OR :"schema".ring(:'schema.queue'::regclass, j.queue_id) IS NOT NULL, false
    INTO enqueue.id, born_at, enqueue.created, enqueue.replaced;
    IF NOT FOUND THEN
        PERFORM :"schema".refuse('SC001', format('unknown queue %L', enqueue.queue), 'make it first: samecommit queues create');
    ELSIF pg_column_size(enqueue.payload) > 2000 THEN
        INSERT INTO :"schema".body (job_id, created_at, payload) VALUES (enqueue.id, born_at, enqueue.payload);
    END IF;
END
$$;

-- A job as `enqueue_many` takes it: the parameters of `enqueue`, as the keys of a JSON object.
CREATE TYPE :"schema".new_job AS (
    kind text, payload jsonb, queue text, priority int, run_at timestamptz, delay interval, max_attempts int, tags text[],
    parent_id bigint, effect_key text, expires_at timestamptz, payload_version int, meta jsonb,
    unique_key text, unique_scope text, unique_for interval, on_conflict text
);

-- Refuses what is no array of jobs, and says where.
CREATE FUNCTION :"schema".check_jobs(jobs jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known CONSTANT text[] := ARRAY['kind', 'payload', 'queue', 'priority', 'run_at', 'delay', 'max_attempts', 'tags',
                                   'parent_id', 'effect_key', 'expires_at', 'payload_version', 'meta',
                                   'unique_key', 'unique_scope', 'unique_for', 'on_conflict'];
    wrong text;
BEGIN
    IF jsonb_typeof(jobs) IS DISTINCT FROM 'array' THEN
        PERFORM :"schema".refuse('SC004', format('jobs is %s', coalesce(jsonb_typeof(jobs), 'null')), 'give a JSON array of objects');
    END IF;
    SELECT CASE WHEN jsonb_typeof(g.job) <> 'object' THEN format('job %s is no object', g.n - 1)
                WHEN g.job ->> 'kind' IS NULL THEN format('job %s has no kind', g.n - 1)
                ELSE format('job %s has an unknown key: %s', g.n - 1, left((g.job - known)::text, 100)) END
    INTO wrong
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, n)
    WHERE CASE WHEN jsonb_typeof(g.job) = 'object' THEN g.job - known <> '{}' OR g.job ->> 'kind' IS NULL ELSE true END
    LIMIT 1;
    IF FOUND THEN
        PERFORM :"schema".refuse('SC004', wrong, 'the keys are the parameters of enqueue, counted from job 0');
    END IF;
END
$$;

-- The way of jobs that replace or reject: one by one in the order of their keys, since each locks its key and the job there.
CREATE FUNCTION :"schema".enqueue_each(jobs jsonb) RETURNS TABLE (id bigint, created boolean, replaced boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids       bigint[];
    creates   boolean[];
    replaces  boolean[];
    g         record;
    stored    record;
BEGIN
    FOR g IN
        SELECT j.*
        FROM jsonb_populate_recordset(NULL:::"schema".new_job, jobs) WITH ORDINALITY AS j (
            kind, payload, queue, priority, run_at, delay, max_attempts, tags, parent_id, effect_key, expires_at,
            payload_version, meta, unique_key, unique_scope, unique_for, on_conflict, n)
        ORDER BY CASE WHEN j.unique_key IS NOT NULL THEN coalesce(j.unique_scope, j.kind) END COLLATE "C",
                 :"schema".stored_key(j.unique_key) COLLATE "C", j.n
    LOOP
        stored := :"schema".enqueue(
            g.kind, coalesce(g.payload, '{}'), coalesce(g.queue, 'default'), coalesce(g.priority, 0), g.run_at, g.delay,
            g.max_attempts, g.tags, g.parent_id, g.effect_key, g.expires_at, coalesce(g.payload_version, 1), g.meta,
            g.unique_key, g.unique_scope, g.unique_for, coalesce(g.on_conflict, 'existing'));
        ids[g.n] := stored.id;
        creates[g.n] := stored.created;
        replaces[g.n] := stored.replaced;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(ids, creates, replaces);
END
$$;

-- Stores many jobs in the caller's transaction, given as a JSON array of objects whose keys are the parameters of `enqueue`
-- (durations as texts, "90 seconds"). One row for each, in their order. Unique keys are taken in one order, whatever that of
-- the jobs; the second job of a key within one call comes to the first. Nothing is stored when one is refused.
CREATE FUNCTION :"schema".enqueue_many(jobs jsonb) RETURNS TABLE (id bigint, created boolean, replaced boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    are_keyed boolean := jobs @? '$[*].unique_key';
BEGIN
    PERFORM :"schema".check_jobs(jobs);
    IF are_keyed AND jobs @? '$[*].on_conflict ? (@ != "existing")' THEN
        RETURN QUERY SELECT * FROM :"schema".enqueue_each(jobs);
        RETURN;
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (  -- the transaction has its id before the first place is given: bookmarks rely on it
        SELECT clock_timestamp() AS asked_at
        WHERE pg_current_xact_id() IS NOT NULL
    ), given AS MATERIALIZED (
        SELECT g.*, q.id AS queue_id, q.retention, q.max_attempts AS queue_max_attempts, a.asked_at,
               coalesce(g.run_at, a.asked_at) + coalesce(g.delay, interval '0') AS due_at,
               pg_column_size(g.payload) > 2000 AS is_large,
               CASE WHEN g.unique_key IS NOT NULL THEN coalesce(g.unique_scope, g.kind) END AS scope,
               nextval(:'schema.job_id_seq') AS new_id,
               -- not a condition: the planner's guess at it would change the order of the rows
               CASE WHEN coalesce(g.priority, 0) BETWEEN -100 AND 100 AND coalesce(g.max_attempts, 1) BETWEEN 1 AND 32767
                         AND coalesce(g.payload_version, 1) BETWEEN 0 AND 32767 AND :"schema".is_name(g.kind) THEN true
                    ELSE :"schema".check_name('kind', g.kind, format('job %s: ', g.n - 1))
                         AND :"schema".check_numbers(g.priority, g.max_attempts, g.payload_version, format('job %s: ', g.n - 1))
               END AS is_sound
        FROM asked AS a
        CROSS JOIN jsonb_populate_recordset(NULL:::"schema".new_job, jobs) WITH ORDINALITY AS g (
            kind, payload, queue, priority, run_at, delay, max_attempts, tags, parent_id, effect_key, expires_at,
            payload_version, meta, unique_key, unique_scope, unique_for, on_conflict, n)
        LEFT JOIN :"schema".queue AS q ON q.name = coalesce(g.queue, 'default')
        WHERE (q.id IS NOT NULL
               OR :"schema".refuse('SC001', format('unknown queue %L', g.queue), 'make it first: samecommit queues create') = 0)
          AND ((g.unique_key IS NULL AND g.unique_scope IS NULL AND g.unique_for IS NULL)
               OR (g.unique_key <> '' AND coalesce(g.unique_scope <> '', true)
                   AND coalesce(g.unique_for > interval '0', true))
               OR :"schema".refuse('SC004', format('job %s: unique key %L of %L for %L', g.n - 1, left(g.unique_key, 100),
                                                   g.unique_scope, g.unique_for),
                                   'give a key and a scope that are not empty, and a window above 0') = 0)
    ), placed AS MATERIALIZED (
        SELECT :"schema".acquire_keys(
                   array_agg(g.scope ORDER BY g.n), array_agg(g.unique_key ORDER BY g.n), array_agg(g.new_id ORDER BY g.n),
                   array_agg(g.asked_at + g.unique_for ORDER BY g.n)) AS holders
        FROM given AS g
        WHERE are_keyed
    ), inserted AS (
        INSERT INTO :"schema".job (
            id, pos, run_at, created_at, expires_at, parent_id, queue_id, priority, max_attempts, retention, payload_version,
            kind, tags, effect_key, unique_scope, unique_key, meta, payload)
        SELECT g.new_id, CASE WHEN g.due_at <= g.asked_at THEN nextval(:'schema.pos_seq') END, g.due_at, g.asked_at,
               g.expires_at, g.parent_id, g.queue_id, coalesce(g.priority, 0),
               CASE WHEN g.is_sound THEN coalesce(g.max_attempts, g.queue_max_attempts) END,
               g.retention, coalesce(g.payload_version, 1), g.kind, g.tags, g.effect_key, g.scope,
               CASE WHEN g.scope IS NOT NULL THEN :"schema".stored_key(g.unique_key) END, g.meta,
               CASE WHEN g.is_large THEN NULL ELSE coalesce(g.payload, '{}') END
        FROM given AS g
        CROSS JOIN placed AS p
        WHERE p.holders IS NULL OR p.holders[g.n] = g.new_id
    ), kept AS (
        INSERT INTO :"schema".body (job_id, created_at, payload)
        SELECT g.new_id, g.asked_at, g.payload
        FROM given AS g
        CROSS JOIN placed AS p
        WHERE g.is_large AND (p.holders IS NULL OR p.holders[g.n] = g.new_id)
    )
    SELECT coalesce(p.holders[g.n], g.new_id), coalesce(p.holders[g.n] = g.new_id, true), false
    FROM given AS g
    CROSS JOIN placed AS p
    WHERE (SELECT count(:"schema".ring(:'schema.queue'::regclass, due.queue_id))
           FROM (SELECT DISTINCT d.queue_id FROM given AS d WHERE d.due_at <= d.asked_at) AS due) IS NOT NULL
    ORDER BY g.n;
END
$$;

-- Makes a queue, or leaves the one that is there. In a transaction of its own: a queue must not hang on a business write.
CREATE FUNCTION :"schema".create_queue(
    name text, retention text DEFAULT NULL, max_attempts int DEFAULT NULL
) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    INSERT INTO :"schema".queue (name, retention, max_attempts)
    VALUES (CASE WHEN :"schema".check_name('queue name', create_queue.name) THEN create_queue.name END,
            coalesce(array_position(ARRAY['none', 'short', 'default', 'long'], coalesce(create_queue.retention, 'default')) - 1,
                     :"schema".refuse('SC004', format('unknown retention %L', create_queue.retention),
                                      'one of none, short, default and long')),
            CASE WHEN :"schema".check_numbers(NULL, create_queue.max_attempts, NULL) THEN coalesce(create_queue.max_attempts, 20) END)
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
        crashes, max_attempts, retention, payload_version, kind, state, tags, effect_key, unique_scope, unique_key, last_error,
        decision, meta, payload)
    SELECT id, run_at, created_at, NULL, claimed_at, clock_timestamp(), parent_id, replay_of, queue_id, claims, priority,
           attempts, crashes, max_attempts, CASE retention WHEN 0 THEN 1 ELSE retention END, payload_version, kind, 'cancelled',
           tags, effect_key, unique_scope, unique_key, coalesce(cancel.reason, last_error), decision, meta, payload
    FROM gone
    WHERE gone.unique_key IS NULL OR :"schema".give_back_key(gone.id, gone.unique_scope, gone.unique_key) IS NOT NULL;
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

-- Takes the key of a job that is to live again. True when it has none, or has got it; waits for a rival.
CREATE FUNCTION :"schema".retake_key(job_id bigint, scope text, key text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN scope IS NULL OR :"schema".take_key(scope, key, job_id) = job_id;
END
$$;

-- Puts a waiting or failed job aside for a person. Returns 'held', 'running' or 'duplicate' (a failed job whose unique key
-- another one holds by now), which change nothing, or 'too late'.
CREATE FUNCTION :"schema".hold(
    job_id bigint, reason text, data jsonb DEFAULT NULL, until_at timestamptz DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    waiting record;
BEGIN
    SELECT j.state, j.claim_id, j.unique_scope, j.unique_key INTO waiting
    FROM :"schema".job AS j WHERE j.id = hold.job_id
    FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM :"schema".state_of(hold.job_id);
        RETURN 'too late';
    ELSIF waiting.claim_id IS NOT NULL THEN
        RETURN 'running';
    ELSIF waiting.state = 'failed' AND NOT :"schema".retake_key(hold.job_id, waiting.unique_scope, waiting.unique_key) THEN
        RETURN 'duplicate';
    END IF;
    UPDATE :"schema".job AS j
    SET state = 'held', pos = NULL, blocked_by = NULL, since_at = clock_timestamp(), hold_reason = hold.reason,
        hold_data = hold.data, hold_until_at = hold.until_at, decision = NULL
    WHERE j.id = hold.job_id;
    RETURN 'held';
END
$$;

-- Lets a held job go on, with a decision that the handler reads. Returns 'released', or the state it is in instead. A person
-- wants it done, so it does not expire any more (as a retried one, which the history brings back without its time).
CREATE FUNCTION :"schema".release(job_id bigint, decision jsonb DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    released int;
BEGIN
    UPDATE :"schema".job AS j
    SET state = 'ready', pos = nextval(:'schema.pos_seq'), run_at = clock_timestamp(), since_at = NULL, hold_until_at = NULL,
        expires_at = NULL, decision = release.decision, crashes = 0, lost = 0
    WHERE j.id = release.job_id AND j.state = 'held'
    RETURNING j.queue_id INTO released;
    IF FOUND THEN
        DELETE FROM :"schema".cancellation AS c WHERE c.job_id = release.job_id;
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
-- failed or cancelled job back from the history while its day is kept. Returns 'retried', 'duplicate' (another job holds
-- its unique key by now) or 'incomplete' (its payload is no longer kept), which change nothing, or the state it is in instead.
CREATE FUNCTION :"schema".retry(job_id bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old record;
BEGIN
    SELECT j.unique_scope, j.unique_key, j.queue_id, j.state = 'failed' AS is_over, true AS is_here, true AS is_whole INTO old
    FROM :"schema".job AS j
    WHERE j.id = retry.job_id AND j.claim_id IS NULL AND j.state IN ('failed', 'ready') AND j.pos IS NULL
    FOR UPDATE;
    IF NOT FOUND THEN
        SELECT h.unique_scope, h.unique_key, h.queue_id, true AS is_over, false AS is_here,
               h.payload IS NOT NULL
               OR EXISTS (SELECT FROM :"schema".body AS b WHERE b.job_id = h.id AND b.created_at = h.created_at) AS is_whole
        INTO old
        FROM :"schema".job_history AS h
        WHERE h.id = retry.job_id AND h.state IN ('failed', 'cancelled')
        FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN :"schema".state_of(retry.job_id);
    ELSIF NOT old.is_whole THEN
        RETURN 'incomplete';
    ELSIF old.is_over AND NOT :"schema".retake_key(retry.job_id, old.unique_scope, old.unique_key) THEN
        RETURN 'duplicate';
    END IF;
    IF old.is_here THEN
        UPDATE :"schema".job AS j
        SET state = 'ready', pos = nextval(:'schema.pos_seq'), run_at = clock_timestamp(), since_at = NULL, blocked_by = NULL,
            attempts = 0, crashes = 0, lost = 0, expires_at = CASE WHEN NOT old.is_over THEN j.expires_at END
        WHERE j.id = retry.job_id;
    ELSE
        WITH back AS (
            DELETE FROM :"schema".job_history AS h
            WHERE h.id = retry.job_id AND h.state IN ('failed', 'cancelled')
            RETURNING h.*
        )
        INSERT INTO :"schema".job (
            id, pos, created_at, parent_id, replay_of, queue_id, claims, priority, max_attempts, retention, payload_version,
            kind, tags, effect_key, unique_scope, unique_key, last_error, decision, meta, payload)
        SELECT id, nextval(:'schema.pos_seq'), created_at, parent_id, replay_of, queue_id, claims, priority, max_attempts,
               retention, payload_version, kind, tags, effect_key, unique_scope, unique_key, last_error, decision, meta,
               payload
        FROM back;
    END IF;
    -- a request from before it ended would cancel it again
    DELETE FROM :"schema".cancellation AS c WHERE c.job_id = retry.job_id;
    PERFORM :"schema".ring(:'schema.queue'::regclass, old.queue_id);
    RETURN 'retried';
END
$$;

-- New jobs from old ones, linked by replay_of; the old ones stay as they are. `patch` is merged over each payload.
-- A replay gets an effect key of its own (its effects are meant to happen again) unless `keep_effect_key`. It takes the
-- unique key of the old one; where a live job holds it, that job's id comes back, with `created` false. Raises SC002 when the
-- payload of one is no longer kept: a patch alone is not what it was asked to do.
CREATE FUNCTION :"schema".replay(
    job_ids bigint[], patch jsonb DEFAULT NULL, queue text DEFAULT NULL, keep_effect_key boolean DEFAULT false
) RETURNS TABLE (id bigint, replay_of bigint, created boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH target AS (
        SELECT (SELECT q.id FROM :"schema".queue AS q WHERE q.name = replay.queue) AS queue_id
    ), old AS (
        SELECT DISTINCT ON (o.id) o.*
        FROM target AS t
        CROSS JOIN (
            SELECT j.id, j.parent_id, j.queue_id, j.priority, j.max_attempts, j.retention, j.payload_version, j.kind, j.tags,
                   j.effect_key, j.unique_scope, j.unique_key, j.meta, j.payload, j.created_at
            FROM :"schema".job AS j WHERE j.id = ANY (replay.job_ids)
            UNION ALL
            SELECT h.id, h.parent_id, h.queue_id, h.priority, h.max_attempts, h.retention, h.payload_version, h.kind, h.tags,
                   h.effect_key, h.unique_scope, h.unique_key, h.meta, h.payload, h.created_at
            FROM :"schema".job_history AS h WHERE h.id = ANY (replay.job_ids)
        ) AS o
        WHERE replay.queue IS NULL OR t.queue_id IS NOT NULL
           OR :"schema".refuse('SC001', format('unknown queue %L', replay.queue), 'samecommit queues lists them') = 0
    ), filled AS (
        SELECT old.*, coalesce(old.payload, b.payload,
                               to_jsonb(:"schema".refuse('SC002', format('the payload of job %s is no longer kept', old.id),
                                                         'replay the others, and enqueue this one anew')))
                      || coalesce(replay.patch, '{}') AS whole,
               nextval(:'schema.job_id_seq') AS new_id, clock_timestamp() AS new_created_at,
               coalesce(t.queue_id, old.queue_id) AS new_queue
        FROM old
        CROSS JOIN target AS t
        LEFT JOIN :"schema".body AS b ON old.payload IS NULL AND b.job_id = old.id AND b.created_at = old.created_at
    ), placed AS (
        SELECT p.job_id, p.holder
        FROM (SELECT array_agg(new_id) AS ids, array_agg(unique_scope) AS scopes, array_agg(unique_key) AS keys FROM filled) AS f
        CROSS JOIN LATERAL unnest(f.ids, :"schema".acquire_keys(f.scopes, f.keys, f.ids)) AS p (job_id, holder)
    ), kept AS (
        INSERT INTO :"schema".body (job_id, created_at, payload)
        SELECT f.new_id, f.new_created_at, f.whole
        FROM filled AS f
        JOIN placed AS p ON p.job_id = f.new_id AND p.holder = f.new_id
        WHERE pg_column_size(f.whole) > 2000
    ), inserted AS (
        INSERT INTO :"schema".job (
            id, pos, created_at, parent_id, replay_of, queue_id, priority, max_attempts, retention, payload_version,
            kind, tags, effect_key, unique_scope, unique_key, meta, payload)
        SELECT f.new_id, nextval(:'schema.pos_seq'), f.new_created_at, f.parent_id, f.id, f.new_queue, f.priority,
               f.max_attempts, f.retention, f.payload_version, f.kind, f.tags,
               CASE WHEN replay.keep_effect_key
                    THEN coalesce(f.effect_key, (SELECT s.value #>> '{}' FROM :"schema".setting AS s WHERE s.name = 'installation')
                                                || ':' || f.id || ':' || (extract(epoch FROM f.created_at) * 1000000)::bigint) END,
               f.unique_scope, f.unique_key, f.meta, CASE WHEN pg_column_size(f.whole) <= 2000 THEN f.whole END
        FROM filled AS f
        JOIN placed AS p ON p.job_id = f.new_id AND p.holder = f.new_id
        RETURNING job.id, job.replay_of, job.queue_id
    )
    SELECT p.holder, f.id, i.id IS NOT NULL AND :"schema".ring(:'schema.queue'::regclass, i.queue_id) IS NOT NULL
    FROM filled AS f
    JOIN placed AS p ON p.job_id = f.new_id
    LEFT JOIN inserted AS i ON i.id = f.new_id;
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

-- Why a job is where it is: `why` always answers, with the most decisive reason first. A `code` is for programs and stays;
-- a `sentence` is for people and may be worded better. Nothing here is locked, and every count is bounded; the line is
-- walked lane by lane, as claims do, since no index is in the line's own order (highest priority first, then place).

CREATE FUNCTION :"schema".said(moment timestamptz) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT to_char(said.moment AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC';
END;

CREATE FUNCTION :"schema".said_span(span interval) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN s < 120 THEN round(s) || ' s'
                WHEN s < 7200 THEN round(s / 60) || ' min'
                WHEN s < 172800 THEN round(s / 3600) || ' h'
                ELSE round(s / 86400) || ' days' END
    FROM (SELECT abs(extract(epoch FROM said_span.span))) AS of (s);
END;

CREATE FUNCTION :"schema".said_error(error text) RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(nullif(left(split_part(btrim(said_error.error), E'\n', 1), 300), ''), 'no reason given');
END;

-- Who keeps dead rows from being cleared away, the oldest first, once it is no passing matter: a session's transaction after
-- a minute, a prepared one after five seconds, a replication slot when it is a million transactions behind. Of other users'
-- sessions only members of pg_read_all_stats see anything.
CREATE FUNCTION :"schema".horizon_holders(patience interval DEFAULT '1 min', behind bigint DEFAULT 1000000)
RETURNS TABLE (holder text, name text, since_at timestamptz, transactions bigint, advice text)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT h.holder, h.name, h.since_at, h.transactions, h.advice
    FROM (
        SELECT 'prepared transaction', p.gid, p.prepared, age(p.transaction)::bigint, format('COMMIT PREPARED %L or ROLLBACK PREPARED %L', p.gid, p.gid)
        FROM pg_prepared_xacts AS p
        WHERE p.database = current_database() AND p.prepared <= clock_timestamp() - least(patience, interval '5 s')
        UNION ALL
        SELECT 'session', format('%s of %s (%s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), 'no name')), a.xact_start,
               age(coalesce(a.backend_xmin, a.backend_xid))::bigint, format('SELECT pg_terminate_backend(%s)', a.pid)
        FROM pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.xact_start <= clock_timestamp() - patience
          AND coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL
        UNION ALL
        SELECT 'replication slot', s.slot_name::text, NULL, age(s.xmin)::bigint,
               CASE WHEN s.active THEN 'look what its standby runs' ELSE format('SELECT pg_drop_replication_slot(%L), if nobody comes back to it', s.slot_name) END
        FROM pg_replication_slots AS s
        WHERE s.xmin IS NOT NULL AND age(s.xmin) >= behind
    ) AS h (holder, name, since_at, transactions, advice)
    ORDER BY h.transactions DESC;
END;

-- What keeps workers from a queue, or from one kind in it (NULL: any kind).
CREATE FUNCTION :"schema".why_line(queue text, kind text) RETURNS TABLE (rank int, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    WITH living AS (
        SELECT w.state, w.running, w.concurrency, w.note, w.host, w.pid,
               '*' = ANY (w.queues) OR why_line.queue = ANY (w.queues) AS serves,
               why_line.kind IS NULL OR why_line.kind = ANY (w.kinds) AS knows
        FROM :"schema".worker AS w
        WHERE w.expires_at > clock_timestamp()
    ), summed AS (
        SELECT count(*) AS workers,
               count(*) FILTER (WHERE serves) AS serving,
               count(*) FILTER (WHERE serves AND knows) AS able,
               count(*) FILTER (WHERE serves AND knows AND state = 'working') AS working,
               count(*) FILTER (WHERE serves AND knows AND state = 'working' AND running < concurrency) AS free,
               coalesce(sum(running) FILTER (WHERE serves AND knows), 0) AS running
        FROM living
    )
    SELECT 9, 'away', a.reason, NULL::timestamptz
    FROM (SELECT :"schema".away()) AS a (reason)
    WHERE a.reason IS NOT NULL
    UNION ALL
    SELECT 10, 'queue_paused',
           format('queue %L has been paused since %s: %s; %s', q.name, :"schema".said(q.paused_at),
                  coalesce(q.pause_reason, 'no reason given'),
                  CASE WHEN q.paused_until IS NULL THEN format('until it is resumed (samecommit queues resume %s)', q.name)
                       ELSE 'until ' || :"schema".said(q.paused_until) END),
           q.paused_until
    FROM :"schema".queue AS q
    WHERE q.name = why_line.queue AND q.paused_at IS NOT NULL AND coalesce(q.paused_until > clock_timestamp(), true)
    UNION ALL
    SELECT 11, 'no_worker', 'no worker is alive: start one with samecommit worker MODULE:APP', NULL
    FROM summed WHERE workers = 0
    UNION ALL
    SELECT 12, 'no_worker_for_queue',
           format('no living worker (%s) works on queue %L: start one that does', workers, why_line.queue), NULL
    FROM summed WHERE workers > 0 AND serving = 0
    UNION ALL
    SELECT 13, 'kind_unknown',
           format('no living worker (%s) on queue %L knows kind %L: is it misspelt, or is their code older than the job?',
                  serving, why_line.queue, why_line.kind), NULL
    FROM summed WHERE serving > 0 AND able = 0
    UNION ALL
    SELECT 14, 'kind_cooling',
           format('kind %L cools down for %s more: %s', c.kind, :"schema".said_span(c.until_at - clock_timestamp()),
                  coalesce(c.reason, 'a handler was told to slow down')), c.until_at
    FROM :"schema".cooldown AS c
    WHERE c.kind = why_line.kind AND c.until_at > clock_timestamp()
    UNION ALL
    SELECT 15, 'workers_stopping', format('every worker that could run it (%s) is stopping', able), NULL
    FROM summed WHERE able > 0 AND working = 0
    UNION ALL
    SELECT 16, 'workers_busy',
           format('every worker that could run it (%s) is busy; jobs running: %s', working, running), NULL
    FROM summed WHERE working > 0 AND free = 0
    UNION ALL
    SELECT 17, 'worker_note', format('worker %s on %s says: %s', l.pid, l.host, l.note), NULL
    FROM living AS l
    WHERE l.serves AND l.knows AND l.note IS NOT NULL;
END;

-- A job that waits: for its time, for a kind, for company to leave, or in line.
CREATE FUNCTION :"schema".why_waiting(job_id bigint)
RETURNS TABLE (rank int, state text, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    WITH mine AS (
        SELECT j.*, q.name AS queue, j.run_at > clock_timestamp() AS is_early,
               CASE WHEN j.pos IS NOT NULL OR j.blocked_by IS NOT NULL THEN 'ready'
                    WHEN j.attempts > 0 THEN 'retrying' ELSE 'scheduled' END AS shown
        FROM :"schema".job AS j
        JOIN :"schema".queue AS q ON q.id = j.queue_id
        WHERE j.id = why_waiting.job_id AND j.state = 'ready' AND j.claim_id IS NULL
    ), ahead AS (
        SELECT count(*) FILTER (WHERE seen.claim_id IS NULL) AS jobs, count(*) >= 10000 AS is_cut
        FROM mine
        CROSS JOIN LATERAL (
            SELECT l.claim_id
            FROM generate_series(100, mine.priority, -1) AS lane (priority)
            CROSS JOIN LATERAL (
                SELECT j.claim_id
                FROM :"schema".job AS j
                WHERE j.queue_id = mine.queue_id AND j.priority = lane.priority
                  AND j.pos < CASE WHEN lane.priority = mine.priority THEN mine.pos ELSE 9223372036854775807 END
                ORDER BY j.pos
                LIMIT 10000
            ) AS l
            LIMIT 10000
        ) AS seen
    )
    SELECT 1, m.shown, 'not_due',
           CASE WHEN isfinite(m.run_at)
                THEN format('due at %s, in %s', :"schema".said(m.run_at), :"schema".said_span(m.run_at - clock_timestamp()))
                ELSE 'not due at any time' END
           || CASE WHEN m.attempts > 0 THEN format('; attempt %s of %s ended with: %s', m.attempts, m.max_attempts,
                                                   :"schema".said_error(m.last_error)) ELSE '' END, m.run_at
    FROM mine AS m WHERE m.pos IS NULL AND m.blocked_by IS NULL AND m.is_early
    UNION ALL
    SELECT 2, m.shown, 'coming_in_line', format('due since %s: a living worker puts it in line within a second',
                                                :"schema".said(m.run_at)), NULL
    FROM mine AS m WHERE m.pos IS NULL AND m.blocked_by IS NULL AND NOT m.is_early
    UNION ALL
    SELECT 3, m.shown, 'stepped_aside',
           format('it stepped out of line because no living worker knew kind %L; it comes back when one does', m.kind), NULL
    FROM mine AS m WHERE m.blocked_by = 'kind'
    UNION ALL
    SELECT 4, m.shown, 'suspect',
           format('workers that died with it: %s; it runs apart from other jobs, when a worker has nothing else to do%s',
                  m.lost, CASE WHEN m.is_early THEN ' and not before ' || :"schema".said(m.run_at) END),
           CASE WHEN m.is_early THEN m.run_at END
    FROM mine AS m WHERE m.blocked_by = 'suspect'
    UNION ALL
    SELECT 5, m.shown, 'limited', 'a concurrency or rate limit keeps it back until others have ended', NULL
    FROM mine AS m WHERE m.blocked_by = 'limit'
    UNION ALL
    SELECT 6, m.shown, 'expired', format('its time ended at %s: it will be cancelled instead of run', :"schema".said(m.expires_at)),
           NULL
    FROM mine AS m WHERE m.expires_at <= clock_timestamp()
    UNION ALL
    SELECT line.rank, m.shown, line.code, line.sentence, line.until_at
    FROM mine AS m
    CROSS JOIN LATERAL :"schema".why_line(m.queue, m.kind) AS line
    UNION ALL
    SELECT 30, m.shown, 'in_line',
           CASE WHEN a.is_cut THEN format('in line in queue %L behind at least %s jobs', m.queue, a.jobs)
                WHEN a.jobs = 0 THEN format('next in line in queue %L', m.queue)
                ELSE format('in line in queue %L, jobs before it: %s', m.queue, a.jobs) END, NULL
    FROM mine AS m
    CROSS JOIN ahead AS a
    WHERE m.pos IS NOT NULL;
END;

-- A job that is claimed: by a living worker, or by one that has gone.
CREATE FUNCTION :"schema".why_running(job_id bigint)
RETURNS TABLE (rank int, state text, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    WITH mine AS (
        SELECT j.claimed_at, j.attempts, j.max_attempts, w.host, w.pid, w.beat_at, w.expires_at,
               coalesce(w.expires_at > clock_timestamp(), false) AS is_alive,
               EXISTS (SELECT FROM :"schema".worker AS o WHERE o.expires_at > clock_timestamp()) AS has_reaper
        FROM :"schema".job AS j
        LEFT JOIN :"schema".claim AS c ON c.claim_id = j.claim_id
        LEFT JOIN :"schema".worker AS w ON w.lease_id = c.lease_id
        WHERE j.id = why_running.job_id AND j.claim_id IS NOT NULL
    )
    SELECT 1, 'running', 'cancel_asked', format('its worker has been asked to stop it since %s: %s', :"schema".said(k.requested_at),
                                                coalesce(k.reason, 'no reason given')), NULL::timestamptz
    FROM mine AS m
    JOIN :"schema".cancellation AS k ON k.job_id = why_running.job_id
    WHERE m.is_alive
    UNION ALL
    SELECT 2, 'running', 'running', format('running for %s, attempt %s of %s, by pid %s on %s; leased until %s',
                                           :"schema".said_span(clock_timestamp() - m.claimed_at), m.attempts + 1, m.max_attempts,
                                           m.pid, m.host, :"schema".said(m.expires_at)), m.expires_at
    FROM mine AS m WHERE m.is_alive
    UNION ALL
    SELECT 3, 'running', 'lease_expired',
           CASE WHEN m.expires_at IS NULL THEN format('the worker that claimed it at %s is gone', :"schema".said(m.claimed_at))
                ELSE format('its worker (pid %s on %s) was last heard of at %s and its lease has ended', m.pid, m.host,
                            :"schema".said(m.beat_at)) END
           || CASE WHEN m.has_reaper THEN ': a living worker gives the job back within seconds' ELSE '' END, NULL
    FROM mine AS m WHERE NOT m.is_alive
    UNION ALL
    SELECT 4, 'running', 'no_worker', 'no worker is alive to give it back: start one with samecommit worker MODULE:APP', NULL
    FROM mine AS m WHERE NOT m.is_alive AND NOT m.has_reaper;
END;

-- A job that waits for a person, has ended, or is not there.
CREATE FUNCTION :"schema".why_over(job_id bigint)
RETURNS TABLE (rank int, state text, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    WITH kept AS (
        SELECT j.* FROM :"schema".job AS j WHERE j.id = why_over.job_id
    ), ended AS (
        SELECT h.* FROM :"schema".job_history AS h
        WHERE h.id = why_over.job_id AND NOT EXISTS (SELECT FROM kept)
        ORDER BY h.finished_at DESC
        LIMIT 1
    )
    SELECT 1, 'held', 'held', format('held for a person since %s: %s; %s (samecommit jobs release %s)', :"schema".said(k.since_at),
                                     coalesce(k.hold_reason, 'no reason given'),
                                     CASE WHEN k.hold_until_at IS NULL THEN 'until it is released'
                                          ELSE 'it fails at ' || :"schema".said(k.hold_until_at) || ' if nobody decides' END,
                                     k.id), k.hold_until_at
    FROM kept AS k WHERE k.state = 'held'
    UNION ALL
    SELECT 1, 'failed', 'failed', format('failed at %s after %s of %s attempts: %s (samecommit jobs retry %s)',
                                         :"schema".said(k.since_at), k.attempts, k.max_attempts,
                                         :"schema".said_error(k.last_error), k.id), NULL
    FROM kept AS k WHERE k.state = 'failed'
    UNION ALL
    SELECT 1, e.state, CASE WHEN e.state = 'cancelled' AND e.last_error LIKE 'expired at %' THEN 'expired' ELSE e.state END,
           CASE e.state WHEN 'done' THEN format('done at %s, in its %s. run', :"schema".said(e.finished_at), e.claims)
                        WHEN 'cancelled' THEN format('cancelled at %s: %s', :"schema".said(e.finished_at),
                                                     :"schema".said_error(e.last_error))
                        ELSE format('failed, and moved to the history at %s: %s (samecommit jobs retry %s)',
                                    :"schema".said(e.finished_at), :"schema".said_error(e.last_error), e.id) END, NULL
    FROM ended AS e
    UNION ALL
    SELECT 1, 'unknown', 'not_found',
           CASE WHEN why_over.job_id > s.last_value OR NOT s.is_called
                THEN format('no job has had the id %s yet; %s', why_over.job_id,
                            CASE WHEN s.is_called THEN format('the newest is %s', s.last_value) ELSE 'there was no job at all' END)
                ELSE format('no job has the id %s: its transaction has not committed or was rolled back, or it ended and its '
                            'history is over or was not kept%s', coalesce(why_over.job_id::text, 'NULL'),
                            (SELECT '; prepared and not committed: ' || string_agg(quote_literal(p.gid), ', ' ORDER BY p.prepared)
                             FROM pg_prepared_xacts AS p
                             WHERE p.database = current_database())) END, NULL
    FROM :"schema".job_id_seq AS s
    WHERE NOT EXISTS (SELECT FROM kept) AND NOT EXISTS (SELECT FROM ended);
END;

-- Why a job is not running, or what became of it. At least one row.
CREATE FUNCTION :"schema".why(job_id bigint) RETURNS TABLE (state text, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT r.state, r.code, r.sentence, r.until_at
    FROM (
        SELECT * FROM :"schema".why_waiting(why.job_id)
        UNION ALL
        SELECT * FROM :"schema".why_running(why.job_id)
        UNION ALL
        SELECT * FROM :"schema".why_over(why.job_id)
    ) AS r
    ORDER BY r.rank;
END;

-- Why nothing of a queue runs, or that it does. At least one row.
CREATE FUNCTION :"schema".why_queue(queue text) RETURNS TABLE (state text, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    WITH mine AS (
        SELECT q.id, q.name,
               CASE WHEN q.paused_at IS NOT NULL AND coalesce(q.paused_until > clock_timestamp(), true) THEN 'paused'
                    ELSE 'open' END AS shown
        FROM :"schema".queue AS q
        WHERE q.name = why_queue.queue
    ), known AS (
        SELECT DISTINCT k.kind
        FROM :"schema".worker AS w
        CROSS JOIN LATERAL unnest(w.kinds) AS k (kind)
        WHERE w.expires_at > clock_timestamp() AND ('*' = ANY (w.queues) OR why_queue.queue = ANY (w.queues))
    ), line AS (
        SELECT j.claim_id, j.kind, j.run_at, row_number() OVER () AS n
        FROM mine
        CROSS JOIN LATERAL (
            SELECT l.claim_id, l.kind, l.run_at
            FROM generate_series(100, -100, -1) AS lane (priority)
            CROSS JOIN LATERAL (
                SELECT i.claim_id, i.kind, i.run_at
                FROM :"schema".job AS i
                WHERE i.queue_id = mine.id AND i.priority = lane.priority AND i.pos IS NOT NULL
                ORDER BY i.pos
                LIMIT 10000
            ) AS l
            LIMIT 10000
        ) AS j
    ), told AS (
        SELECT w.rank, w.code, w.sentence, w.until_at
        FROM mine
        CROSS JOIN LATERAL :"schema".why_line(mine.name, NULL) AS w
        UNION ALL
        SELECT 20, 'kind_unknown', format('no living worker on it knows what stands near the head of the line: %s',
                                          string_agg(DISTINCT quote_literal(l.kind), ', ')), NULL
        FROM line AS l
        WHERE l.claim_id IS NULL AND l.n <= 1000 AND EXISTS (SELECT FROM known) AND l.kind NOT IN (SELECT kind FROM known)
        HAVING count(*) > 0
        UNION ALL
        SELECT 21, 'kind_cooling', format('kind %L cools down for %s more: %s', c.kind,
                                          :"schema".said_span(c.until_at - clock_timestamp()),
                                          coalesce(c.reason, 'a handler was told to slow down')), c.until_at
        FROM :"schema".cooldown AS c
        JOIN known AS k ON k.kind = c.kind
        WHERE c.until_at > clock_timestamp()
        UNION ALL
        SELECT 30, CASE WHEN count(*) FILTER (WHERE claim_id IS NULL) > 0 THEN 'in_line' ELSE 'empty' END,
               CASE WHEN count(*) FILTER (WHERE claim_id IS NULL) > 0
                    THEN format('jobs in line: %s%s, the oldest due since %s',
                                CASE WHEN count(*) >= 10000 THEN 'at least ' END, count(*) FILTER (WHERE claim_id IS NULL),
                                :"schema".said(min(run_at) FILTER (WHERE claim_id IS NULL)))
                    ELSE 'nothing is in line' END, NULL
        FROM line
        UNION ALL
        SELECT 40, 'horizon_held',
               format('%s %s has kept dead rows from being cleared away%s, %s transactions long; claims get slower and tables grow '
                      'until it ends: %s', h.holder, quote_literal(h.name), ' since ' || :"schema".said(h.since_at), h.transactions,
                      h.advice), NULL
        FROM :"schema".horizon_holders() AS h
    )
    SELECT r.state, r.code, r.sentence, r.until_at
    FROM (
        SELECT t.rank, m.shown AS state, t.code, t.sentence, t.until_at
        FROM told AS t
        CROSS JOIN mine AS m
        UNION ALL
        SELECT 1, 'unknown', 'not_found',
               format('there is no queue %L; the first of those that there are: %s', why_queue.queue,
                      (SELECT string_agg(quote_literal(f.name), ', ')
                       FROM (SELECT q.name FROM :"schema".queue AS q ORDER BY q.name LIMIT 10) AS f)), NULL
        WHERE NOT EXISTS (SELECT FROM mine)
    ) AS r
    ORDER BY r.rank;
END;
