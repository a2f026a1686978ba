-- The inbox of receivers: which messages a consumer has taken, so that a repeat is dropped in the transaction of its effects.
--
-- Each message is put into two tables, and is new if both take it. They are emptied in turn by TRUNCATE, which leaves nothing to
-- vacuum and waits for the transactions that write: a message is always in one of them for at least the time between two
-- emptyings, and two transactions with the same message always meet in one. Messages are known by a digest: ids may be long.

CREATE TABLE :"schema".inbox_a (digest bytea PRIMARY KEY);
CREATE TABLE :"schema".inbox_b (digest bytea PRIMARY KEY);

-- The newest number that a consumer has applied of each key.
CREATE TABLE :"schema".inbox_newest (
    digest bytea PRIMARY KEY,
    number bigint NOT NULL
) WITH (fillfactor = 70);

INSERT INTO :"schema".setting (name, value)
VALUES ('inbox_a_emptied', to_jsonb(clock_timestamp())), ('inbox_b_emptied', to_jsonb(clock_timestamp()));

-- Notes a message as taken by a consumer, in the caller's transaction; false when it was already. Waits for a transaction that
-- has noted the same message and has not ended.
CREATE FUNCTION :"schema".inbox_once(consumer text, source text, id text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH message AS (
        SELECT sha256(convert_to(jsonb_build_array(inbox_once.consumer, inbox_once.source, inbox_once.id)::text, 'UTF8')) AS digest
    ), in_a AS (
        INSERT INTO :"schema".inbox_a (digest) SELECT m.digest FROM message AS m ON CONFLICT DO NOTHING RETURNING 1
    ), in_b AS (
        INSERT INTO :"schema".inbox_b (digest) SELECT m.digest FROM message AS m ON CONFLICT DO NOTHING RETURNING 1
    )
    SELECT count(*) = 2 FROM (SELECT FROM in_a UNION ALL SELECT FROM in_b) AS taken;
END;

-- Notes the number of a key as applied, in the caller's transaction; false when that number or a later one was already.
CREATE FUNCTION :"schema".inbox_latest(consumer text, source text, key text, number bigint) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH put AS (
        INSERT INTO :"schema".inbox_newest AS n (digest, number)
        VALUES (sha256(convert_to(jsonb_build_array(inbox_latest.consumer, inbox_latest.source, inbox_latest.key)::text, 'UTF8')),
                inbox_latest.number)
        ON CONFLICT (digest) DO UPDATE SET number = excluded.number WHERE n.number < excluded.number
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM put);
END;

-- Empties the table that has been filled for longer, if nothing was emptied for `keep`; whether it did. Asks for the table's
-- exclusive lock for half a second at most: an inbox in use is emptied at a later call.
CREATE FUNCTION :"schema".empty_inbox(keep interval) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    turn record;
BEGIN
    SELECT s.name, max((s.value #>> '{}')::timestamptz) OVER () AS last_at INTO turn
    FROM :"schema".setting AS s
    WHERE s.name IN ('inbox_a_emptied', 'inbox_b_emptied')
    ORDER BY (s.value #>> '{}')::timestamptz, s.name
    LIMIT 1;
    IF clock_timestamp() < turn.last_at + keep THEN
        RETURN false;
    END IF;
    IF turn.name = 'inbox_a_emptied' THEN
        TRUNCATE :"schema".inbox_a;
    ELSE
        TRUNCATE :"schema".inbox_b;
    END IF;
    UPDATE :"schema".setting AS s SET value = to_jsonb(clock_timestamp()) WHERE s.name = turn.name;
    RETURN true;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN false;
END
$$;
