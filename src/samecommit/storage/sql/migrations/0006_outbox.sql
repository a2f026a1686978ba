-- The outbox: an append-only log of events, the windows in which they became visible, and how far each destination is.
--
-- An event gets its number when it is written and appears when its transaction commits, so numbers appear out of order and
-- "greater than the last one seen" skips. A window is a stored snapshot: its events are those visible in it and not in the
-- one before, ordered by number. Two stored snapshots denote the same rows for ever, so an event's place (window, number)
-- is the same after any crash. Never ordered by transaction id: that is not the order of commits within a key.

-- CACHE 1: a session that keeps numbers back would put a key's later event before its earlier one.
CREATE SEQUENCE :"schema".event_seq CACHE 1;

CREATE TABLE :"schema".event (
    number       bigint NOT NULL DEFAULT nextval(:'schema.event_seq'),
    xid          xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lane         smallint NOT NULL,
    version      smallint NOT NULL,
    id           text NOT NULL,
    source       text NOT NULL,
    type         text NOT NULL,
    key          text,
    subject      text,
    content_type text NOT NULL,
    extensions   jsonb,
    data         bytea NOT NULL,
    PRIMARY KEY (number, created_at)
) PARTITION BY RANGE (created_at);

CREATE INDEX event_window_scan ON :"schema".event (xid, number);

-- Window 0 shows nothing: a destination that starts at the beginning starts there. `events` and their `first` and `last` number
-- are of this window.
CREATE TABLE :"schema".event_window (
    n         bigint PRIMARY KEY,
    snapshot  pg_snapshot NOT NULL,
    events    bigint NOT NULL DEFAULT 0,
    first     bigint NOT NULL DEFAULT 0,
    last      bigint NOT NULL DEFAULT 0,
    made_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO :"schema".event_window (n, snapshot) VALUES (0, '1:1:');

-- `sink` and `ordering` are told by the application, for people; `begins_at` is when the window was made behind which it began.
CREATE TABLE :"schema".destination (
    name         text PRIMARY KEY,
    mode         text NOT NULL,
    shards       int NOT NULL DEFAULT 1,
    matches      text[] NOT NULL,
    sink         text,
    ordering     text,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    begins_at    timestamptz,
    paused_at    timestamptz,
    pause_reason text,
    CONSTRAINT destination_name CHECK (name ~ '^[a-z0-9][a-z0-9_.-]{0,99}$'),
    CONSTRAINT destination_mode CHECK (mode IN ('stream', 'jobs')),
    CONSTRAINT destination_shards CHECK (shards BETWEEN 1 AND 1024)
);

-- Everything up to and with `window_n` is done, and of the window behind it every number up to `after`. Written only by the
-- holder of the lease, matched on `fence`. `is_clean` says that nothing behind the position was sent. `holder_name` is who
-- held it last, heard of at `heard_at`; `resume_at` is until when a destination that is down or throttled is left alone.
CREATE TABLE :"schema".position (
    destination    text NOT NULL,
    shard          int NOT NULL,
    window_n       bigint NOT NULL,
    after          bigint NOT NULL DEFAULT 0,
    fence          bigint NOT NULL DEFAULT 0,
    holder         bigint,
    holder_name    text,
    lease_until_at timestamptz NOT NULL DEFAULT 'epoch',
    is_clean       boolean NOT NULL DEFAULT true,
    delivered      bigint NOT NULL DEFAULT 0,
    repeated       bigint NOT NULL DEFAULT 0,
    moved_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    heard_at       timestamptz,
    state          text NOT NULL DEFAULT 'running',
    trouble        text,
    resume_at      timestamptz,
    ref            text,
    PRIMARY KEY (destination, shard),
    CONSTRAINT position_state CHECK (state IN ('running', 'down', 'throttled', 'halted'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

-- What could not go straight through. Only the holder of the position deletes; a person changes `state`, through `resolve`.
--   due       is sent at due_at                     waiting   stands behind an earlier event of its key
--   dead      the destination will never take it    decision  nobody knows whether it arrived; a person decides
--   settled   a person said that it is done with
CREATE TABLE :"schema".parked (
    destination text NOT NULL,
    number      bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    lane        smallint NOT NULL,
    key         text,
    blocks      boolean NOT NULL,
    state       text NOT NULL,
    attempts    int NOT NULL DEFAULT 0,
    first_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_doubtful boolean NOT NULL DEFAULT false,
    last_error  text,
    detail      jsonb,
    PRIMARY KEY (destination, number),
    CONSTRAINT parked_state CHECK (state IN ('due', 'waiting', 'dead', 'decision', 'settled')),
    CONSTRAINT parked_blocks CHECK (NOT blocks OR key IS NOT NULL)
);

CREATE INDEX parked_due ON :"schema".parked (destination, due_at) WHERE state IN ('due', 'settled');
CREATE INDEX parked_key ON :"schema".parked (destination, key, number) WHERE blocks;

-- A job destination's deliveries that have begun: written before the call, so that a run whose end is unknown is in doubt.
CREATE TABLE :"schema".delivery (
    job_id      bigint PRIMARY KEY,
    destination text NOT NULL,
    target      text NOT NULL,
    attempts    int NOT NULL DEFAULT 1,
    first_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_doubtful boolean NOT NULL DEFAULT true,
    is_decided  boolean NOT NULL DEFAULT false,
    last_error  text
) WITH (fillfactor = 50);

-- In which order the deliveries of a key run, where a job destination keeps one: by job id. Written with the jobs.
CREATE TABLE :"schema".delivery_turn (
    destination text NOT NULL,
    target      text NOT NULL,
    key         text NOT NULL,
    job_id      bigint NOT NULL,
    PRIMARY KEY (destination, target, key, job_id)
);

-- The cluster whose transaction ids the log holds; another one means that it was restored or moved (see rebase_outbox).
INSERT INTO :"schema".setting (name, value)
VALUES ('outbox_system', (SELECT to_jsonb(system_identifier::text) FROM pg_control_system())),
-- On which timeline of the server windows were made last, and what number they began above there (see make_window).
       ('outbox_line', '{"timeline": null, "floor": 0}');

SELECT :"schema".make_day(:'schema.event'::regclass, day::date)
FROM generate_series((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 14, interval '1 day') AS day;

-- Whether these can be attributes of their own beside those that an event has anyway: short plain names, plain texts.
CREATE FUNCTION :"schema".can_be_extensions(extensions jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN jsonb_typeof(extensions) = 'object' AND NOT EXISTS (
        SELECT
        FROM jsonb_each(extensions) AS e
        WHERE (e.key ~ '^[a-z0-9]+$' AND length(e.key) <= 20
               AND e.key <> ALL ('{id,source,type,specversion,subject,time,datacontenttype,dataschema,data,partitionkey,sequence,
                                   lognumber,replay,deliveryattempt,schemaversion}'::text[])
               AND jsonb_typeof(e.value) = 'string'
               AND length(e.value #>> '{}') BETWEEN 1 AND 1000
               AND e.value #>> '{}' !~ '[\x01-\x1f\x7f]') IS NOT TRUE
    );
END
$$;

-- Refuses an event that `store_event` does not store: says which part, its value, and what to give.
CREATE FUNCTION :"schema".refuse_event(
    type text, data bytea, key text, id text, source text, subject text, content_type text, extensions jsonb
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad record;
BEGIN
    IF refuse_event.type ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]*$' AND length(refuse_event.type) <= 200 THEN
        NULL;
    ELSE
        PERFORM :"schema".refuse('SC004', format('event type %L cannot be used', left(refuse_event.type, 250)),
                                 'give 1 to 200 letters, digits and . _ - : /, as in lead.created');
    END IF;
    IF NOT length(refuse_event.key) BETWEEN 1 AND 200 OR refuse_event.key ~ '[[:cntrl:]]' THEN
        PERFORM :"schema".refuse('SC004', format('event key %L cannot be used', left(refuse_event.key, 250)),
                                 'give 1 to 200 characters without control characters, or NULL for no order');
    END IF;
    SELECT t.name, t.value INTO bad
    FROM (VALUES ('id', refuse_event.id), ('source', refuse_event.source), ('subject', refuse_event.subject),
                 ('content_type', coalesce(refuse_event.content_type, ''))) AS t (name, value)
    WHERE NOT length(t.value) BETWEEN 1 AND 1000 OR t.value ~ '[\x01-\x1f\x7f]';
    IF FOUND THEN
        PERFORM :"schema".refuse('SC004', format('event %s %L cannot be used', bad.name, left(bad.value, 250)),
                                 'give 1 to 1000 characters without control characters');
    END IF;
    IF NOT :"schema".can_be_extensions(refuse_event.extensions) THEN
        PERFORM :"schema".refuse('SC004', format('event extensions %L cannot be used', left(refuse_event.extensions::text, 250)),
                                 'give names of 1 to 20 of a-z and 0-9 that are no attribute of an event, each with 1 to 1000 '
                                 'characters without control characters');
    END IF;
    PERFORM :"schema".refuse('SC004', format('event data of %s bytes cannot be stored', octet_length(refuse_event.data)),
                             'give up to 1048576 bytes; store larger ones elsewhere and emit where they are');
END
$$;

CREATE TYPE :"schema".stored_event AS (number bigint, id text);

-- What emit and emit_bytes do, and the client library calls. In PL/pgSQL, since PostgreSQL before 18 plans the statement of an
-- SQL function anew in each call. A regular expression with a bound as in {1,200} would be built anew in each call as well.
CREATE FUNCTION :"schema".store_event(
    type text, data bytea, key text, id text, source text, subject text, content_type text, version int, extensions jsonb
) RETURNS :"schema".stored_event
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stored  :"schema".stored_event;
    is_told boolean;
BEGIN
    -- Few statements and expressions: each is set up again in every transaction, at a microsecond or more.
    IF (store_event.type ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]*$' AND length(store_event.type) <= 200
        AND (store_event.key IS NULL OR (length(store_event.key) BETWEEN 1 AND 200 AND store_event.key !~ '[[:cntrl:]]'))
        AND (store_event.id IS NULL OR length(store_event.id) BETWEEN 1 AND 1000)
        AND (store_event.source IS NULL OR length(store_event.source) BETWEEN 1 AND 1000)
        AND (store_event.subject IS NULL OR length(store_event.subject) BETWEEN 1 AND 1000)
        AND length(store_event.content_type) BETWEEN 1 AND 1000
        AND concat(store_event.id, store_event.source, store_event.subject, store_event.content_type) !~ '[\x01-\x1f\x7f]'
        AND (store_event.extensions IS NULL OR :"schema".can_be_extensions(store_event.extensions))
        AND octet_length(store_event.data) <= 1048576) IS NOT TRUE THEN
        PERFORM :"schema".refuse_event(store_event.type, store_event.data, store_event.key, store_event.id, store_event.source,
                                       store_event.subject, store_event.content_type, store_event.extensions);
    END IF;
    INSERT INTO :"schema".event AS e
        (number, lane, version, id, source, type, key, subject, content_type, extensions, data)
    VALUES (nextval(:'schema.event_seq'),
            CASE WHEN store_event.key IS NULL THEN trunc(random() * 1024)::int ELSE hashtextextended(store_event.key, 0) & 1023 END,
            store_event.version, coalesce(store_event.id, gen_random_uuid()::text), coalesce(store_event.source, 'samecommit'),
            store_event.type, store_event.key, store_event.subject, store_event.content_type, store_event.extensions,
            store_event.data)
    RETURNING e.number, e.id, CASE
        WHEN current_setting('samecommit.doorbell', true) = 'off' THEN true
        WHEN pg_try_advisory_xact_lock_shared(hashoid(:'schema.queue'::regclass), 64) THEN true
        ELSE pg_notify('samecommit_event_' || (:'schema.queue'::regclass)::oid::text, '') IS NOT NULL
    END
    INTO stored.number, stored.id, is_told;
    RETURN stored;
END
$$;

-- Returns data that are said to be JSON, and are. A sink that makes one JSON document of an event puts them in as they are.
CREATE FUNCTION :"schema".only_json(type text, data bytea, content_type text) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM convert_from(only_json.data, 'UTF8')::json;
    RETURN only_json.data;
EXCEPTION WHEN data_exception THEN
    PERFORM :"schema".refuse(
        'SC004', format('event %L has content_type %L, but its %s bytes are no JSON: %s', left(only_json.type, 250),
                        left(only_json.content_type, 250), octet_length(only_json.data), SQLERRM),
        'call emit with the value itself, or give the content_type that the bytes have');
END
$$;

-- Stores an event in the caller's transaction and wakes a sleeping relay. What a destination could never take is refused
-- here, where its emitter can see it. Emit after the write that locks the event's subject: within a key, the order is that
-- of the emits under that lock.
CREATE FUNCTION :"schema".emit_bytes(
    type         text,
    data         bytea,
    key          text DEFAULT NULL,
    id           text DEFAULT NULL,
    source       text DEFAULT NULL,
    subject      text DEFAULT NULL,
    content_type text DEFAULT 'application/octet-stream',
    version      int DEFAULT 1,
    extensions   jsonb DEFAULT NULL
) RETURNS :"schema".stored_event
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN :"schema".store_event(
        emit_bytes.type,
        CASE WHEN emit_bytes.content_type ~* '^\s*(application/json|[^;]*\+json)\s*(;|$)'
             THEN :"schema".only_json(emit_bytes.type, emit_bytes.data, emit_bytes.content_type)
             ELSE emit_bytes.data END,
        emit_bytes.key, emit_bytes.id, emit_bytes.source, emit_bytes.subject, emit_bytes.content_type, emit_bytes.version,
        emit_bytes.extensions);
END
$$;

-- As emit_bytes, for JSON: what triggers and psql call.
CREATE FUNCTION :"schema".emit(
    type       text,
    data       jsonb DEFAULT '{}',
    key        text DEFAULT NULL,
    id         text DEFAULT NULL,
    source     text DEFAULT NULL,
    subject    text DEFAULT NULL,
    version    int DEFAULT 1,
    extensions jsonb DEFAULT NULL
) RETURNS :"schema".stored_event
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN :"schema".store_event(
        emit.type, convert_to(emit.data::text, 'UTF8'), emit.key, emit.id, emit.source, emit.subject, 'application/json',
        emit.version, emit.extensions);
END
$$;

-- The events of one window that are visible now, by transaction id: two index ranges. `from_` is the snapshot before.
CREATE FUNCTION :"schema".events_between(from_ pg_snapshot, to_ pg_snapshot)
RETURNS TABLE (number bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT e.number
    FROM :"schema".event AS e
    WHERE e.xid >= pg_snapshot_xmax(from_) AND e.xid < pg_snapshot_xmax(to_) AND pg_visible_in_snapshot(e.xid, to_)
    UNION ALL
    SELECT e.number
    FROM :"schema".event AS e
    WHERE e.xid = ANY (ARRAY(SELECT pg_snapshot_xip(from_))) AND pg_visible_in_snapshot(e.xid, to_);
END;

-- Makes a window of what has become visible since the last one; NULL when nothing has, or somebody else was faster. The
-- snapshot is that of the statement itself, so what is counted and what is stored agree. Needs no leader: the primary key
-- lets one of two through, and a window's number is above those that its snapshot could see.
--
-- A destination may have stored a number that this log does not have any more, or never had: it was restored to an earlier
-- moment, or is a new one with an old name. Counting on, its next events would be taken for old ones there. So in a new log, on
-- a new timeline (a restore to a moment, a failover) and after an adoption numbers go on above the milliseconds since 1970:
-- windows are made more slowly than those pass. The first statement's row lock makes two calls agree on the floor. A copy makes
-- no window before its adoption, which is what tells that the floor is needed.
--
-- Until its first checkpoint a promoted server has its timeline in the record of its recovery, and from then on in that of the
-- checkpoint: one write changes both, so the first is read before the second. A smaller timeline is an older reading.
CREATE FUNCTION :"schema".make_window() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    UPDATE :"schema".setting AS s
    SET value = jsonb_build_object('timeline', here.timeline,
                                   'floor', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    FROM (SELECT greatest(later.timeline, r.timeline) AS timeline
          FROM (SELECT min_recovery_end_timeline AS timeline FROM pg_control_recovery() OFFSET 0) AS r
          CROSS JOIN LATERAL (SELECT c.timeline_id AS timeline FROM pg_control_checkpoint() AS c
                              WHERE r.timeline IS NOT NULL OFFSET 0) AS later) AS here
    WHERE s.name = 'outbox_line' AND coalesce((s.value ->> 'timeline')::bigint < here.timeline, true);
    INSERT INTO :"schema".event_window (n, snapshot, events, first, last)
    SELECT greatest(last.n, last.floor) + 1, pg_current_snapshot(), fresh.events, fresh.first, fresh.last
    FROM (SELECT w.n, w.snapshot,
                 (SELECT (s.value ->> 'floor')::bigint FROM :"schema".setting AS s WHERE s.name = 'outbox_line') AS floor FROM :"schema".event_window AS w ORDER BY w.n DESC LIMIT 1) AS last
    CROSS JOIN LATERAL (
        SELECT count(*) AS events, min(e.number) AS first, max(e.number) AS last
        FROM :"schema".events_between(last.snapshot, pg_current_snapshot()) AS e
    ) AS fresh
    WHERE fresh.events > 0 AND :"schema".away() IS NULL
    ON CONFLICT DO NOTHING
    RETURNING event_window.n;
END;

-- Adds a destination, or takes up a changed configuration; positions stay. A new one begins behind window `start_n`, NULL is
-- now. Locks the positions, and their rows against those who take windows away, so that the window it begins behind stays; only
-- once the newest window is made, which takes minutes when there is much to count. Returns whether it was new.
CREATE FUNCTION :"schema".add_destination(
    name text, mode text, shards int, matches text[], start_n bigint DEFAULT NULL, sink text DEFAULT NULL,
    ordering text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began record;
BEGIN
    PERFORM :"schema".make_window();
    LOCK TABLE :"schema".position IN EXCLUSIVE MODE;
    SELECT w.n, w.made_at INTO began FROM :"schema".event_window AS w
    WHERE w.n <= coalesce(add_destination.start_n, 9223372036854775807) ORDER BY w.n DESC LIMIT 1;
    INSERT INTO :"schema".destination AS d (name, mode, shards, matches, sink, ordering, begins_at)
    VALUES (add_destination.name, add_destination.mode, add_destination.shards, add_destination.matches, add_destination.sink,
            add_destination.ordering, began.made_at)
    ON CONFLICT ON CONSTRAINT destination_pkey DO UPDATE
        SET matches = excluded.matches, sink = coalesce(excluded.sink, d.sink), ordering = coalesce(excluded.ordering, d.ordering)
        WHERE d.matches <> excluded.matches OR d.sink IS DISTINCT FROM coalesce(excluded.sink, d.sink)
           OR d.ordering IS DISTINCT FROM coalesce(excluded.ordering, d.ordering);
    IF EXISTS (SELECT FROM :"schema".destination AS d WHERE d.name = add_destination.name
               AND (d.mode, d.shards) IS DISTINCT FROM (add_destination.mode, add_destination.shards)) THEN
        PERFORM :"schema".refuse('SC004', format('destination %L exists with another mode or number of shards', name),
                                 'give the changed destination a new name');
    END IF;
    INSERT INTO :"schema".position (destination, shard, window_n)
    SELECT add_destination.name, s.shard, began.n
    FROM generate_series(0, add_destination.shards - 1) AS s (shard)
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

-- A person's word on a parked event: 'resend' it, or treat it as 'delivered' or 'dropped'. Returns whether it was parked.
CREATE FUNCTION :"schema".resolve(destination text, number bigint, verdict text, note text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF verdict IS NULL OR verdict NOT IN ('resend', 'delivered', 'dropped') THEN
        PERFORM :"schema".refuse('SC004', format('verdict %L is unknown', verdict), 'give resend, delivered or dropped');
    END IF;
    UPDATE :"schema".parked AS p
    SET state = CASE verdict WHEN 'resend' THEN 'due' ELSE 'settled' END, due_at = clock_timestamp(),
        first_at = clock_timestamp(), is_doubtful = false, last_error = coalesce(note, p.last_error)
    WHERE p.destination = resolve.destination AND p.number = resolve.number AND p.state IN ('due', 'dead', 'decision');
    IF FOUND THEN
        PERFORM pg_notify('samecommit_event_' || (:'schema.queue'::regclass)::oid::text, resolve.destination);
    END IF;
    RETURN FOUND;
END
$$;

-- Forgets a destination: its positions, what is parked there and its replays. Its jobs stay. Returns whether it was there.
CREATE FUNCTION :"schema".remove_destination(name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM :"schema".position AS p WHERE p.destination = remove_destination.name;
    DELETE FROM :"schema".parked AS p WHERE p.destination = remove_destination.name;
    DELETE FROM :"schema".replay_position AS r WHERE r.destination = remove_destination.name;
    DELETE FROM :"schema".event_replay AS r WHERE r.destination = remove_destination.name;
    DELETE FROM :"schema".destination AS d WHERE d.name = remove_destination.name;
    RETURN FOUND;
END
$$;

-- Stops a destination until it is resumed; what is in flight ends. Lives in the database: a restart does not lose it.
CREATE FUNCTION :"schema".pause_destination(name text, reason text DEFAULT NULL) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    UPDATE :"schema".destination AS d
    SET paused_at = coalesce(d.paused_at, clock_timestamp()), pause_reason = pause_destination.reason
    WHERE d.name = pause_destination.name
    RETURNING pg_notify('samecommit_event_' || (:'schema.queue'::regclass)::oid::text, d.name) IS NOT NULL;
END;

CREATE FUNCTION :"schema".resume_destination(name text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    UPDATE :"schema".destination AS d
    SET paused_at = NULL, pause_reason = NULL
    WHERE d.name = resume_destination.name
    RETURNING pg_notify('samecommit_event_' || (:'schema.queue'::regclass)::oid::text, d.name) IS NOT NULL;
END;

-- After a dump and restore (or a move by logical replication) the stored transaction ids are those of another cluster, and
-- new ones would fall into windows that are done. Windows are arithmetic on stored values, so what each destination still
-- has to get is computed from them; then the log is rewritten in tiers, one for each distinct position (what it has not got,
-- but those behind it have), with ids below every real one. Window numbers go on above what destinations may have stored (see
-- make_window). An
-- event younger than the last window is in no window, whatever its transaction id. Returns whether it was needed.
CREATE FUNCTION :"schema".rebase_outbox() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here jsonb := (SELECT to_jsonb(system_identifier::text) FROM pg_control_system());
    last_at timestamptz;
    last_n bigint;
BEGIN
    IF here = (SELECT value FROM :"schema".setting WHERE name = 'outbox_system') THEN
        RETURN false;
    END IF;
    LOCK TABLE :"schema".event, :"schema".event_window, :"schema".position IN EXCLUSIVE MODE;
    IF here = (SELECT value FROM :"schema".setting WHERE name = 'outbox_system') THEN
        RETURN false;
    END IF;
    SELECT max(made_at), greatest(max(n), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) INTO last_at, last_n
    FROM :"schema".event_window;
    CREATE TEMPORARY TABLE samecommit_rebase ON COMMIT DROP AS
    SELECT p.window_n, p.after, w.snapshot AS done,
           coalesce((SELECT x.snapshot FROM :"schema".event_window AS x WHERE x.n > p.window_n ORDER BY x.n LIMIT 1),
                    w.snapshot) AS doing,
           row_number() OVER (ORDER BY p.window_n, p.after) AS tier
    FROM (SELECT DISTINCT p.window_n, p.after FROM :"schema".position AS p) AS p
    JOIN :"schema".event_window AS w ON w.n = p.window_n;
    UPDATE :"schema".event AS e
    SET xid = (3 + (SELECT count(*) FROM pg_temp.samecommit_rebase AS r
                    WHERE e.created_at > last_at
                       OR NOT (pg_visible_in_snapshot(e.xid, r.done)
                               OR (pg_visible_in_snapshot(e.xid, r.doing) AND e.number <= r.after))))::text::xid8;
    DELETE FROM :"schema".event_window WHERE n <> 0;
    INSERT INTO :"schema".event_window (n, snapshot, events, last)
    SELECT last_n + r.tier, format('%s:%s:', 3 + r.tier, 3 + r.tier)::pg_snapshot, 1000000000,
           coalesce((SELECT max(e.number) FROM :"schema".event AS e), 0)
    FROM pg_temp.samecommit_rebase AS r;
    UPDATE :"schema".position AS p
    SET window_n = last_n + r.tier, after = 0, fence = p.fence + 1, holder = NULL, lease_until_at = 'epoch'
    FROM pg_temp.samecommit_rebase AS r
    WHERE (r.window_n, r.after) = (p.window_n, p.after);
    UPDATE :"schema".setting SET value = here WHERE name = 'outbox_system';
    RETURN true;
END
$$;
