-- Operating the outbox: how far each destination is, why an event has not arrived, and delivering again.

-- A replay sends again what a destination has behind it, without moving its position: a side position for each shard walks
-- the log by number, from `after` on. The holder of the shard's position works on it, under the same lease and fence.
-- `id` goes with each event, as which deliberate repeat it is.
-- `trouble` is why it waits now, `refusal` the last event that the destination refused.
CREATE TABLE :"schema".event_replay (
    id           int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    destination  text NOT NULL,
    numbers      bigint[],
    keys         text[],
    types        text[],
    since_at     timestamptz,
    until_at     timestamptz,
    from_number  bigint NOT NULL,
    to_number    bigint NOT NULL,
    per_second   double precision,
    note         text,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by text NOT NULL DEFAULT session_user,
    cancelled_at timestamptz,
    cancelled_by text,
    CONSTRAINT event_replay_rate CHECK (per_second > 0)
);

CREATE TABLE :"schema".replay_position (
    replay      int NOT NULL,
    destination text NOT NULL,
    shard       int NOT NULL,
    after       bigint NOT NULL,
    sent        bigint NOT NULL DEFAULT 0,
    refused     bigint NOT NULL DEFAULT 0,
    refusal     text,
    trouble     text,
    moved_at    timestamptz,
    ended_at    timestamptz,
    PRIMARY KEY (replay, shard)
) WITH (fillfactor = 50);

CREATE INDEX replay_open ON :"schema".replay_position (destination, shard, replay) WHERE ended_at IS NULL;

-- Whether a type is among exact names and beginnings, as in lead.*
CREATE FUNCTION :"schema".type_matches(type text, patterns text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM unnest(type_matches.patterns) AS p (pattern)
                   WHERE p.pattern = type_matches.type
                      OR (right(p.pattern, 1) = '*' AND starts_with(type_matches.type, left(p.pattern, -1))));
END;

-- Where the log begins: the first day that is kept, or the installation when nothing has been dropped yet.
CREATE FUNCTION :"schema".log_begin() RETURNS TABLE (begins_at timestamptz, is_cut boolean)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT greatest(made.made_at, day.begins_at), day.begins_at > made.made_at
    FROM (SELECT w.made_at FROM :"schema".event_window AS w WHERE w.n = 0) AS made
    CROSS JOIN (
        SELECT min(to_date(right(child.relname, 8), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC' AS begins_at
        FROM pg_inherits AS i
        JOIN pg_class AS child ON child.oid = i.inhrelid
        WHERE i.inhparent = :'schema.event'::regclass
    ) AS day;
END;

-- The numbers of events by their ids, looked for among those numbered above `after` and up to `upto`: no index knows ids.
CREATE FUNCTION :"schema".find_events(ids text[], after bigint, upto bigint) RETURNS TABLE (id text, number bigint)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT e.id, e.number
    FROM :"schema".event AS e
    WHERE e.number > find_events.after AND e.number <= find_events.upto AND e.id = ANY (find_events.ids);
END;

-- The first and the last number of the log; NULL and 0 when it is empty.
CREATE FUNCTION :"schema".log_ends() RETURNS TABLE (oldest bigint, newest bigint)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT (SELECT min(e.number) FROM :"schema".event AS e), coalesce((SELECT max(e.number) FROM :"schema".event AS e), 0);
END;

-- How far each position is. `waiting` counts events of all types and keys that the position has not passed: exactly up to
-- 1,000 windows, from there on as a difference of numbers (`is_estimate`); so it costs the same however long the log is.
-- `waiting_since` is when the first of them became visible. Put aside and in doubt are
-- counted up to 10,001; for a job destination these are its jobs among the newest 10,000 held and 10,000 failed ones.
CREATE VIEW :"schema".destinations AS
WITH log AS MATERIALIZED (
    SELECT w.snapshot, s.last_value AS newest, coalesce((SELECT min(e.number) FROM :"schema".event AS e), s.last_value + 1) AS oldest
    FROM :"schema".event_seq AS s
    CROSS JOIN (SELECT x.snapshot FROM :"schema".event_window AS x ORDER BY x.n DESC LIMIT 1) AS w
), fresh AS MATERIALIZED (
    SELECT count(*) AS looked_at, min(e.created_at) AS since_at,
           CASE WHEN count(*) <= 10000 THEN count(*) ELSE max(log.newest) - min(e.number) + 1 END AS events
    FROM log
    CROSS JOIN LATERAL (
        (SELECT e.number, e.created_at FROM :"schema".event AS e
         WHERE e.xid >= pg_snapshot_xmax(log.snapshot) ORDER BY e.xid LIMIT 10001)
        UNION ALL
        (SELECT e.number, e.created_at FROM :"schema".event AS e
         WHERE e.xid = ANY (ARRAY(SELECT pg_snapshot_xip(log.snapshot))) LIMIT 10001)
    ) AS e
)
SELECT p.destination, p.shard, d.shards, d.mode, d.sink, d.ordering, d.matches,
       CASE WHEN d.paused_at IS NOT NULL THEN 'paused'
            WHEN p.lease_until_at <= clock_timestamp() THEN 'no relay'
            ELSE p.state END AS state,
       CASE WHEN p.resume_at > clock_timestamp() AND p.lease_until_at > clock_timestamp() THEN p.resume_at END AS resume_at,
       p.window_n, p.after, p.delivered, p.repeated, p.moved_at, p.heard_at, p.lease_until_at, p.lease_until_at > clock_timestamp() AS has_relay,
       p.holder_name AS relay, d.paused_at, d.pause_reason, d.begins_at,
       CASE WHEN behind.windows = 0 THEN 0
            WHEN behind.windows <= 1000 THEN least(behind.events, greatest(low.distance, 0))
            ELSE greatest(low.distance, 0) END
       + CASE WHEN behind.windows <= 1000 THEN fresh.events ELSE 0 END AS waiting,
       behind.windows > 1000 OR fresh.looked_at > 10000 OR (behind.windows > 0 AND (p.after > 0 OR behind.events > low.distance))
           AS is_estimate,
       least(behind.since_at, fresh.since_at) AS waiting_since,
       coalesce(extract(epoch FROM clock_timestamp() - least(behind.since_at, fresh.since_at)), 0)::float8 AS waiting_seconds,
       aside.events + jobs.events AS parked, aside.dead + jobs.dead AS dead, aside.doubtful + jobs.doubtful AS doubtful,
       coalesce(p.trouble, aside.error, jobs.error) AS last_error,
       (SELECT count(*) FROM :"schema".replay_position AS r
        WHERE r.destination = p.destination AND r.shard = p.shard AND r.ended_at IS NULL) AS replays
FROM :"schema".position AS p
JOIN :"schema".destination AS d ON d.name = p.destination
CROSS JOIN log
CROSS JOIN fresh
CROSS JOIN LATERAL (
    SELECT count(*) AS windows, coalesce(sum(b.events), 0)::bigint AS events, min(b.made_at) AS since_at,
           (array_agg(b.first ORDER BY b.n))[1] AS first
    FROM (SELECT w.n, w.events, w.first, w.made_at FROM :"schema".event_window AS w
          WHERE w.n > p.window_n ORDER BY w.n LIMIT 1001) AS b
) AS behind
CROSS JOIN LATERAL (SELECT log.newest - greatest(p.after, behind.first - 1, log.oldest - 1) AS distance) AS low
CROSS JOIN LATERAL (
    SELECT count(*) AS events, count(*) FILTER (WHERE q.state = 'dead') AS dead,
           count(*) FILTER (WHERE q.state = 'decision') AS doubtful,
           (array_agg(q.last_error ORDER BY q.number) FILTER (WHERE q.last_error IS NOT NULL))[1] AS error
    FROM (SELECT q.number, q.state, q.last_error FROM :"schema".parked AS q
          WHERE q.destination = p.destination AND q.lane % d.shards = p.shard LIMIT 10001) AS q
) AS aside
CROSS JOIN LATERAL (
    SELECT count(*) AS events, count(*) FILTER (WHERE j.state = 'failed') AS dead, count(*) FILTER (WHERE v.is_doubtful) AS doubtful,
           (array_agg(coalesce(v.last_error, j.last_error) ORDER BY j.since_at DESC))[1] AS error
    FROM (
        (SELECT x.id, x.kind, x.state, x.since_at, x.last_error FROM :"schema".job AS x
         WHERE d.mode = 'jobs' AND x.state = 'held' ORDER BY x.since_at DESC LIMIT 10000)
        UNION ALL
        (SELECT x.id, x.kind, x.state, x.since_at, x.last_error FROM :"schema".job AS x
         WHERE d.mode = 'jobs' AND x.state = 'failed' ORDER BY x.since_at DESC LIMIT 10000)
    ) AS j
    LEFT JOIN :"schema".delivery AS v ON v.job_id = j.id AND j.state = 'held'
    WHERE j.kind = 'deliver:' || d.name
) AS jobs;

-- The replays that were asked for, with how far they are (`progress`, 0 to 1, of the log's numbers that they walk).
CREATE VIEW :"schema".replays AS
SELECT r.id, r.destination,
       CASE WHEN r.cancelled_at IS NOT NULL THEN 'cancelled'
            WHEN s.ended_at IS NOT NULL THEN 'done'
            WHEN s.moved_at IS NOT NULL THEN 'running'
            ELSE 'waiting' END AS state,
       s.sent, s.refused,
       CASE WHEN s.ended_at IS NOT NULL AND r.cancelled_at IS NULL THEN 1.0
            ELSE s.walked / greatest((r.to_number - r.from_number) * s.shards, 1) END::float8 AS progress,
       s.trouble, s.refusal, r.per_second, r.numbers, r.keys, r.types, r.since_at, r.until_at, r.from_number, r.to_number, r.note,
       r.requested_at, r.requested_by, coalesce(r.cancelled_at, s.ended_at) AS ended_at, r.cancelled_by
FROM :"schema".event_replay AS r
CROSS JOIN LATERAL (
    SELECT sum(s.sent)::bigint AS sent, sum(s.refused)::bigint AS refused, max(s.moved_at) AS moved_at, count(*) AS shards,
           sum(least(s.after, r.to_number) - r.from_number) AS walked, max(s.trouble) AS trouble,
           max(s.refusal) AS refusal,
           CASE WHEN bool_and(s.ended_at IS NOT NULL) THEN max(s.ended_at) END AS ended_at
    FROM :"schema".replay_position AS s
    WHERE s.replay = r.id
) AS s;

-- Asks for a replay: of the events with these numbers, keys, types (exact, or beginnings as in lead.*), emitted between two
-- moments; what is NULL does not restrict. Returns its id. Only what the destination had behind it is sent again: the rest
-- comes by itself, and what was put aside is decided about with `resolve`.
CREATE FUNCTION :"schema".replay_events(
    destination text, numbers bigint[] DEFAULT NULL, keys text[] DEFAULT NULL, types text[] DEFAULT NULL,
    since_at timestamptz DEFAULT NULL, until_at timestamptz DEFAULT NULL, per_second double precision DEFAULT NULL,
    note text DEFAULT NULL
) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first_day timestamptz := coalesce(date_trunc('day', since_at, 'UTC'), '-infinity');
    day_after timestamptz := coalesce(date_trunc('day', until_at, 'UTC') + interval '1 day', 'infinity');
    lowest bigint;
    highest bigint;
    made int;
BEGIN
    IF NOT EXISTS (SELECT FROM :"schema".destination AS d WHERE d.name = replay_events.destination) THEN
        PERFORM :"schema".refuse('SC006', format('there is no destination %L', replay_events.destination),
                                 'samecommit outbox status lists them');
    ELSIF numbers IS NULL AND keys IS NULL AND types IS NULL AND since_at IS NULL AND until_at IS NULL THEN
        PERFORM :"schema".refuse('SC004', 'a replay of everything was asked for',
                                 'say which events: numbers, keys, types, or since when');
    ELSIF until_at <= since_at THEN
        PERFORM :"schema".refuse('SC004', format('nothing was emitted from %s until %s', since_at, until_at),
                                 'give an end that is after the beginning');
    ELSIF until_at <= (SELECT b.begins_at FROM :"schema".log_begin() AS b WHERE b.is_cut) THEN
        PERFORM :"schema".refuse('SC004', format('all of it is gone: the log begins at %s', (SELECT b.begins_at FROM :"schema".log_begin() AS b)),
                                 'what is not kept any more cannot be sent again');
    ELSIF per_second <= 0 THEN
        PERFORM :"schema".refuse('SC004', format('a rate of %s events a second sends nothing', per_second), 'give more than 0');
    END IF;
    SELECT min(e.number), max(e.number) INTO lowest, highest FROM :"schema".event AS e
    WHERE e.created_at >= first_day AND e.created_at < day_after;
    lowest := greatest(lowest, (SELECT min(n) FROM unnest(numbers) AS n));
    highest := least(highest, (SELECT max(n) FROM unnest(numbers) AS n));
    INSERT INTO :"schema".event_replay AS r (
        destination, numbers, keys, types, since_at, until_at, from_number, to_number, per_second, note)
    VALUES (replay_events.destination, replay_events.numbers, replay_events.keys, replay_events.types, replay_events.since_at,
            replay_events.until_at, coalesce(lowest - 1, 0), greatest(coalesce(highest, 0), coalesce(lowest - 1, 0)),
            replay_events.per_second, replay_events.note)
    RETURNING r.id INTO made;
    INSERT INTO :"schema".replay_position (replay, destination, shard, after)
    SELECT made, p.destination, p.shard, coalesce(lowest - 1, 0)
    FROM :"schema".position AS p
    WHERE p.destination = replay_events.destination;
    PERFORM pg_notify('samecommit_event_' || (:'schema.queue'::regclass)::oid::text, replay_events.destination);
    RETURN made;
END
$$;

-- Ends a replay where it is; what is on its way arrives. Returns whether it was open.
CREATE FUNCTION :"schema".cancel_replay(replay int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE :"schema".replay_position AS s SET ended_at = clock_timestamp()
    WHERE s.replay = cancel_replay.replay AND s.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE :"schema".event_replay AS r SET cancelled_at = clock_timestamp(), cancelled_by = session_user
    WHERE r.id = cancel_replay.replay;
    RETURN true;
END
$$;

-- Which events of a replay are numbered above `after` and up to `upto`: those that the shard (NULL: any) has behind it now and
-- that are not put aside. Costs what it walks. Position and log are read, nothing is locked.
CREATE FUNCTION :"schema".replay_numbers(replay int, shard int, after bigint, upto bigint)
RETURNS TABLE (number bigint, created_at timestamptz, id text, type text, key text)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT e.number, e.created_at, e.id, e.type, e.key
    FROM :"schema".event_replay AS r
    JOIN :"schema".destination AS d ON d.name = r.destination
    JOIN :"schema".position AS p ON p.destination = r.destination
    JOIN :"schema".event_window AS done ON done.n = p.window_n
    LEFT JOIN LATERAL (SELECT w.snapshot FROM :"schema".event_window AS w WHERE w.n > p.window_n ORDER BY w.n LIMIT 1) AS doing ON true
    CROSS JOIN LATERAL (
        SELECT x.*
        FROM :"schema".event AS x
        WHERE x.number > replay_numbers.after AND x.number <= least(replay_numbers.upto, r.to_number)
    ) AS e
    WHERE r.id = replay_numbers.replay
      AND (replay_numbers.shard IS NULL OR p.shard = replay_numbers.shard)
      AND e.lane % d.shards = p.shard
      AND e.created_at < r.requested_at
      AND (r.since_at IS NULL OR e.created_at >= r.since_at)
      AND (r.until_at IS NULL OR e.created_at < r.until_at)
      AND (r.numbers IS NULL OR e.number = ANY (r.numbers))
      AND (r.keys IS NULL OR e.key = ANY (r.keys))
      AND (r.types IS NULL OR :"schema".type_matches(e.type, r.types))
      AND :"schema".type_matches(e.type, d.matches)
      AND (pg_visible_in_snapshot(e.xid, done.snapshot)
           OR (e.number <= p.after AND pg_visible_in_snapshot(e.xid, doing.snapshot)))
      AND NOT EXISTS (SELECT FROM :"schema".parked AS q WHERE q.destination = r.destination AND q.number = e.number);
END;

-- Why a destination gets nothing now, or that it does, the most decisive reason first; as `why_queue`. At least one row.
CREATE FUNCTION :"schema".why_destination(destination text)
RETURNS TABLE (state text, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    WITH mine AS MATERIALIZED (
        SELECT v.*, CASE WHEN v.shards > 1 THEN format('shard %s: ', v.shard) ELSE '' END AS whose,
               CASE WHEN v.is_estimate THEN 'about ' ELSE '' END || v.waiting AS said_waiting
        FROM :"schema".destinations AS v
        WHERE v.destination = why_destination.destination
    ), poison AS (
        SELECT q.number, q.key, q.state, q.last_error
        FROM :"schema".parked AS q
        WHERE q.destination = why_destination.destination AND q.state IN ('dead', 'decision')
        ORDER BY q.number
        LIMIT 1
    ), told AS (
        SELECT 9 AS rank, 'away' AS code, a.reason AS sentence, NULL::timestamptz AS until_at
        FROM (SELECT :"schema".away()) AS a (reason)
        WHERE a.reason IS NOT NULL
        UNION ALL
        SELECT 10, 'paused',
               format('paused since %s: %s; until it is resumed (samecommit outbox resume %s)', :"schema".said(m.paused_at),
                      coalesce(m.pause_reason, 'no reason given'), m.destination), NULL
        FROM mine AS m WHERE m.shard = 0 AND m.paused_at IS NOT NULL
        UNION ALL
        SELECT 11, 'no_relay',
               m.whose || 'no relay holds its position: start samecommit relay MODULE:APP, or a worker; '
               || CASE WHEN m.relay IS NULL THEN 'there was none yet'
                       ELSE format('the last one was %s, heard of at %s', m.relay, :"schema".said(m.heard_at)) END, NULL
        FROM mine AS m WHERE m.state = 'no relay'
        UNION ALL
        SELECT 12, 'halted',
               m.whose || format('halted on event %s: %s (samecommit outbox resolve %s %s)', p.number,
                                 :"schema".said_error(p.last_error), m.destination, p.number), NULL
        FROM mine AS m
        CROSS JOIN (SELECT q.number, q.last_error FROM :"schema".parked AS q
                    WHERE q.destination = why_destination.destination ORDER BY q.number LIMIT 1) AS p
        WHERE m.state = 'halted'
        UNION ALL
        SELECT 13, m.state,
               m.whose || format('the destination is %s: %s; next try %s', m.state, :"schema".said_error(m.last_error),
                                 coalesce('at ' || :"schema".said(m.resume_at), 'now')), m.resume_at
        FROM mine AS m WHERE m.state IN ('down', 'throttled')
        UNION ALL
        SELECT 14, 'waits_for_person',
               format('events put aside that wait for a person: %s, the first is %s (%s): %s; samecommit outbox parked %s lists them',
                      m.dead + m.doubtful, p.number, p.state, :"schema".said_error(p.last_error), m.destination), NULL
        FROM poison AS p
        CROSS JOIN (SELECT min(x.destination) AS destination, sum(x.dead) AS dead, sum(x.doubtful) AS doubtful FROM mine AS x) AS m
        UNION ALL
        SELECT 15, 'jobs_wait', format('delivery jobs that have failed or are held: %s%s; samecommit jobs --kind deliver:%s lists them',
                                       CASE WHEN m.parked > 10000 THEN 'at least ' END, m.parked, m.destination), NULL
        FROM mine AS m WHERE m.mode = 'jobs' AND m.parked > 0
        UNION ALL
        SELECT 16, 'replaying', m.whose || format('replays that share the relay: %s (samecommit outbox replays)', m.replays), NULL
        FROM mine AS m WHERE m.replays > 0
        UNION ALL
        SELECT 20, 'behind',
               m.whose || format('events of all types behind its position: %s, the oldest for %s%s', m.said_waiting,
                                 :"schema".said_span(clock_timestamp() - m.waiting_since),
                                 CASE WHEN m.has_relay THEN format('; relay: %s, heard of %s ago', m.relay,
                                                                   :"schema".said_span(clock_timestamp() - m.heard_at)) ELSE '' END), NULL
        FROM mine AS m WHERE m.waiting > 0
        UNION ALL
        SELECT 30, 'up_to_date', m.whose || format('everything that is committed has been passed; relay: %s, heard of %s ago', m.relay,
                                                   :"schema".said_span(clock_timestamp() - m.heard_at)), NULL
        FROM mine AS m WHERE m.waiting = 0 AND m.state = 'running'
    )
    SELECT r.state, r.code, r.sentence, r.until_at
    FROM (
        SELECT t.rank, (SELECT m.state FROM mine AS m
                        ORDER BY array_position(ARRAY['paused', 'no relay', 'halted', 'down', 'throttled'], m.state) NULLS LAST
                        LIMIT 1) AS state, t.code, t.sentence, t.until_at
        FROM told AS t
        UNION ALL
        SELECT 40, m.state, 'empty', 'nothing waits for it', NULL
        FROM mine AS m WHERE m.shard = 0 AND NOT EXISTS (SELECT FROM told)
        UNION ALL
        SELECT 1, 'unknown', 'not_found',
               format('there is no destination %L; those that there are: %s', why_destination.destination,
                      coalesce((SELECT string_agg(quote_literal(f.name), ', ')
                                FROM (SELECT d.name FROM :"schema".destination AS d ORDER BY d.name LIMIT 10) AS f), 'none')), NULL
        WHERE NOT EXISTS (SELECT FROM mine)
    ) AS r
    ORDER BY r.rank;
END;

-- What became of one event at one destination, or why it has not arrived, the most decisive reason first. At least one row.
CREATE FUNCTION :"schema".why_event(destination text, number bigint)
RETURNS TABLE (state text, code text, sentence text, until_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    WITH asked AS MATERIALIZED (
        SELECT e.number, e.xid, e.created_at, e.type, e.key, e.lane
        FROM :"schema".event AS e
        WHERE e.number = why_event.number
        LIMIT 1
    ), mine AS MATERIALIZED (
        SELECT d.name, d.mode, d.begins_at, d.matches, p.window_n, p.after, a.number, a.created_at, a.type, a.key,
               :"schema".type_matches(a.type, d.matches) AS is_wanted,
               pg_visible_in_snapshot(a.xid, done.snapshot)
                   OR (a.number <= p.after AND coalesce(pg_visible_in_snapshot(a.xid, doing.snapshot), false)) AS is_behind,
               pg_visible_in_snapshot(a.xid, newest.snapshot) AS has_window,
               greatest(a.number - greatest(p.after + 1, doing.first), 0) AS ahead
        FROM asked AS a
        JOIN :"schema".destination AS d ON d.name = why_event.destination
        JOIN :"schema".position AS p ON p.destination = d.name AND p.shard = a.lane % d.shards
        JOIN :"schema".event_window AS done ON done.n = p.window_n
        LEFT JOIN LATERAL (SELECT w.snapshot, w.first FROM :"schema".event_window AS w
                           WHERE w.n > p.window_n ORDER BY w.n LIMIT 1) AS doing ON true
        CROSS JOIN LATERAL (SELECT w.snapshot FROM :"schema".event_window AS w ORDER BY w.n DESC LIMIT 1) AS newest
    ), aside AS MATERIALIZED (
        SELECT q.state, q.attempts, q.due_at, q.last_error, q.first_at, q.key, h.number AS head, h.state AS head_state,
               h.last_error AS head_error
        FROM :"schema".parked AS q
        LEFT JOIN LATERAL (SELECT x.number, x.state, x.last_error FROM :"schema".parked AS x
                           WHERE x.destination = q.destination AND x.key = q.key AND x.blocks AND q.state = 'waiting'
                           ORDER BY x.number LIMIT 1) AS h ON true
        WHERE q.destination = why_event.destination AND q.number = why_event.number
    ), told AS (
        SELECT 2 AS rank, 'unknown' AS state, 'not_in_log' AS code,
               CASE WHEN NOT s.is_called OR why_event.number > s.last_value
                    THEN format('no event has had the number %s yet; the newest is %s', why_event.number,
                                CASE WHEN s.is_called THEN s.last_value ELSE 0 END)
                    WHEN why_event.number < ends.oldest
                    THEN format('event %s is not kept any more, the log begins with %s: days are dropped once every destination has them',
                                why_event.number, ends.oldest)
                    ELSE format('event %s is not in the log: its transaction is still open, or was rolled back', why_event.number) END AS sentence,
               NULL::timestamptz AS until_at
        FROM :"schema".event_seq AS s
        CROSS JOIN :"schema".log_ends() AS ends
        WHERE NOT EXISTS (SELECT FROM asked)
        UNION ALL
        SELECT 3, 'unknown', 'open_transaction',
               format('open for %s: %s in database %s, pid %s (%s)', :"schema".said_span(clock_timestamp() - o.began_at), o.name,
                      o.place, o.pid, o.doing), NULL
        FROM (
            SELECT a.xact_start AS began_at, coalesce(nullif(a.application_name, ''), a.usename::text, '?') AS name,
                   a.datname::text AS place, a.pid::text AS pid, a.state AS doing
            FROM pg_stat_activity AS a
            WHERE a.backend_xid IS NOT NULL AND a.datname = current_database()
            UNION ALL
            SELECT x.prepared, 'prepared transaction ' || x.gid, x.database::text, 'none', 'waits for COMMIT PREPARED'
            FROM pg_prepared_xacts AS x
            WHERE x.database = current_database()
            ORDER BY 1
            LIMIT 5
        ) AS o
        CROSS JOIN :"schema".event_seq AS s
        WHERE NOT EXISTS (SELECT FROM asked) AND s.is_called AND why_event.number <= s.last_value
        UNION ALL
        SELECT 4, 'not for it', 'not_matched', format('its type %L is none of those that go there: %s', m.type,
                                                      array_to_string(m.matches, ', ')), NULL
        FROM mine AS m WHERE NOT m.is_wanted
        UNION ALL
        SELECT 5, 'put aside', 'parked_' || a.state,
               CASE a.state
                   WHEN 'due' THEN format('refused %s times, tried again at %s: %s', a.attempts, :"schema".said(a.due_at),
                                          :"schema".said_error(a.last_error))
                   WHEN 'waiting' THEN format('waits behind event %s of its key %L, which is %s: %s', a.head, a.key, a.head_state,
                                              :"schema".said_error(a.head_error))
                   WHEN 'settled' THEN 'a person has decided about it; its relay takes that up'
                   ELSE format('%s after %s attempts: %s (samecommit outbox resolve %s %s)',
                               CASE a.state WHEN 'dead' THEN 'refused for good' ELSE 'nobody knows whether it arrived,' END,
                               a.attempts, :"schema".said_error(a.last_error), why_event.destination, why_event.number) END,
               CASE WHEN a.state = 'due' THEN a.due_at END
        FROM aside AS a
        UNION ALL
        SELECT 6, 'not for it', 'before_beginning',
               format('it was emitted at %s, and the destination began with what was committed after %s', :"schema".said(m.created_at),
                      :"schema".said(m.begins_at)), NULL
        FROM mine AS m
        WHERE m.is_wanted AND m.is_behind AND m.created_at < m.begins_at AND NOT EXISTS (SELECT FROM aside)
        UNION ALL
        SELECT 7, 'delivered', 'delivered',
               format('the destination has it behind its position (window %s)%s', m.window_n,
                      CASE WHEN m.mode = 'jobs' THEN format(': it became its jobs, see samecommit jobs --kind deliver:%s', m.name)
                           ELSE ': it was delivered, or a person dropped it' END), NULL
        FROM mine AS m
        WHERE m.is_wanted AND m.is_behind AND m.created_at >= m.begins_at AND NOT EXISTS (SELECT FROM aside)
        UNION ALL
        SELECT 8, 'in line', 'no_window', 'it is committed, and no relay has looked at the log since', NULL
        FROM mine AS m WHERE m.is_wanted AND NOT m.is_behind AND NOT m.has_window AND NOT EXISTS (SELECT FROM aside)
        UNION ALL
        SELECT 9, 'in line', 'in_line', format('it stands in line, events before it: about %s', m.ahead), NULL
        FROM mine AS m WHERE m.is_wanted AND NOT m.is_behind AND m.has_window AND NOT EXISTS (SELECT FROM aside)
        UNION ALL
        SELECT 10, 'in line', w.code, w.sentence, w.until_at
        FROM mine AS m
        CROSS JOIN :"schema".why_destination(why_event.destination) AS w
        WHERE m.is_wanted AND NOT m.is_behind AND NOT EXISTS (SELECT FROM aside) AND w.code NOT IN ('behind', 'up_to_date')
    )
    SELECT r.state, r.code, r.sentence, r.until_at
    FROM (
        SELECT 1 AS rank, w.state, w.code, w.sentence, w.until_at
        FROM :"schema".why_destination(why_event.destination) AS w
        WHERE w.code = 'not_found'
        UNION ALL
        SELECT t.rank, t.state, t.code, t.sentence, t.until_at
        FROM told AS t
        WHERE EXISTS (SELECT FROM :"schema".destination AS d WHERE d.name = why_event.destination)
    ) AS r
    ORDER BY r.rank;
END;
