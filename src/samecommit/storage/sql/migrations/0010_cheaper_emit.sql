-- Emits that cost less, and refuse more of what could not be delivered: texts, extensions, and bytes that are no JSON.

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

-- As before, with checks that cost a tenth: a regular expression with a bound as in {1,200} is built anew in each call.
CREATE OR REPLACE FUNCTION :"schema".store_event(
    type text, data bytea, key text, id text, source text, subject text, content_type text, version int, extensions jsonb,
    OUT number bigint, OUT event_id text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
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
    SELECT n.number,
           CASE WHEN store_event.key IS NULL THEN n.number ELSE hashtextextended(store_event.key, 0) END & 1023,
           store_event.version, coalesce(store_event.id, gen_random_uuid()::text), coalesce(store_event.source, 'samecommit'),
           store_event.type, store_event.key, store_event.subject, store_event.content_type, store_event.extensions,
           store_event.data
    FROM (SELECT nextval(:'schema.event_seq')) AS n (number)
    RETURNING e.number, e.id, CASE
        WHEN current_setting('samecommit.doorbell', true) = 'off' THEN true
        WHEN pg_try_advisory_xact_lock_shared(hashoid(:'schema.queue'::regclass), 64) THEN true
        ELSE pg_notify('samecommit_event_' || (:'schema.queue'::regclass)::oid::text, '') IS NOT NULL
    END
    INTO store_event.number, store_event.event_id, is_told;
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

CREATE OR REPLACE FUNCTION :"schema".emit_bytes(
    type         text,
    data         bytea,
    key          text DEFAULT NULL,
    id           text DEFAULT NULL,
    source       text DEFAULT NULL,
    subject      text DEFAULT NULL,
    content_type text DEFAULT 'application/octet-stream',
    version      int DEFAULT 1,
    extensions   jsonb DEFAULT NULL
) RETURNS TABLE (number bigint, id text)
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    SELECT e.number, e.event_id
    FROM :"schema".store_event(emit_bytes.type,
                               CASE WHEN emit_bytes.content_type ~* '^\s*(application/json|[^;]*\+json)\s*(;|$)'
                                    THEN :"schema".only_json(emit_bytes.type, emit_bytes.data, emit_bytes.content_type)
                                    ELSE emit_bytes.data END,
                               emit_bytes.key, emit_bytes.id, emit_bytes.source, emit_bytes.subject, emit_bytes.content_type,
                               emit_bytes.version, emit_bytes.extensions) AS e;
END;
