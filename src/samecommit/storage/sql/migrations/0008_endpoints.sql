-- Endpoints of webhooks: where receivers want which events, and the secrets that requests to them are signed with.

-- `secret` signs; until `old_until_at` the one before it signs, too. A secret stands here, or where it is: env:NAME, file:/path.
CREATE TABLE :"schema".endpoint (
    id              text PRIMARY KEY,
    url             text NOT NULL,
    secret          text NOT NULL,
    old_secret      text,
    old_until_at    timestamptz,
    matches         text[] NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at     timestamptz,
    disabled_reason text,
    CONSTRAINT endpoint_id CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$'),
    CONSTRAINT endpoint_old_secret CHECK ((old_secret IS NULL) = (old_until_at IS NULL)),
    CONSTRAINT endpoint_reason CHECK (disabled_reason IS NULL OR disabled_at IS NOT NULL)
);

-- A secret that can sign, or says where one is; a new one of 32 bytes (244 of their bits are random) in place of NULL.
CREATE FUNCTION :"schema".usable_secret(secret text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF secret IS NULL THEN
        RETURN 'whsec_' || encode(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'base64');
    END IF;
    IF secret !~ '^(whsec_[A-Za-z0-9+/]{32,86}={0,2}|(env|file):[^[:cntrl:]]{1,250})$' THEN
        PERFORM :"schema".refuse('SC004', 'the secret cannot be used',
                                 'give whsec_ and the base64 of 24 to 64 random bytes, env:NAME, file:/path, or NULL for a new one');
    END IF;
    RETURN secret;
END
$$;

-- Adds an endpoint, or gives it another URL and other types; returns its secret. Changing the secret is rotate_endpoint.
CREATE FUNCTION :"schema".add_endpoint(id text, url text, matches text[] DEFAULT '{*}', secret text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known text;
BEGIN
    IF coalesce(id, '') !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$' THEN
        PERFORM :"schema".refuse('SC004', format('endpoint %L cannot be used', id), 'give 1 to 100 letters, digits and _ . -');
    END IF;
    IF coalesce(url, '') !~ '^https?://[^[:space:][:cntrl:]]+$' OR length(url) > 2000 THEN
        PERFORM :"schema".refuse('SC004', format('the URL of endpoint %L cannot be used', id), 'give https://host/path');
    END IF;
    IF coalesce(cardinality(matches), 0) = 0
       OR EXISTS (SELECT FROM unnest(matches) AS m (pattern)
                  WHERE coalesce(m.pattern, '') !~ '^([A-Za-z0-9][A-Za-z0-9_.:/-]*\*?|\*)$') THEN
        PERFORM :"schema".refuse('SC004', format('endpoint %L matches %L', id, matches),
                                 'give event types, or beginnings and one *, as in {order.*}');
    END IF;
    INSERT INTO :"schema".endpoint AS e (id, url, matches, secret)
    VALUES (add_endpoint.id, add_endpoint.url, add_endpoint.matches, :"schema".usable_secret(add_endpoint.secret))
    ON CONFLICT ON CONSTRAINT endpoint_pkey DO UPDATE SET url = excluded.url, matches = excluded.matches
    RETURNING e.secret INTO known;
    IF known <> add_endpoint.secret THEN
        PERFORM :"schema".refuse('SC004', format('endpoint %L has another secret', id), 'change it with rotate_endpoint');
    END IF;
    RETURN known;
END
$$;

-- Gives an endpoint a new secret and returns it; for `keep` requests are signed with the one before, too.
CREATE FUNCTION :"schema".rotate_endpoint(id text, secret text DEFAULT NULL, keep interval DEFAULT '1 day') RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fresh text := :"schema".usable_secret(rotate_endpoint.secret);
BEGIN
    UPDATE :"schema".endpoint AS e
    SET secret = fresh,
        old_secret = CASE WHEN keep > interval '0' THEN e.secret END,
        old_until_at = CASE WHEN keep > interval '0' THEN clock_timestamp() + keep END
    WHERE e.id = rotate_endpoint.id;
    IF NOT FOUND THEN
        PERFORM :"schema".refuse('SC004', format('there is no endpoint %L', id), 'add it with add_endpoint');
    END IF;
    RETURN fresh;
END
$$;

-- Sends nothing more to an endpoint; what it had not got by then fails. Returns whether it is there.
CREATE FUNCTION :"schema".disable_endpoint(id text, reason text DEFAULT NULL) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH changed AS (
        UPDATE :"schema".endpoint AS e
        SET disabled_at = coalesce(e.disabled_at, clock_timestamp()),
            disabled_reason = CASE WHEN e.disabled_at IS NULL THEN disable_endpoint.reason ELSE e.disabled_reason END
        WHERE e.id = disable_endpoint.id
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM changed);
END;

CREATE FUNCTION :"schema".enable_endpoint(id text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH changed AS (
        UPDATE :"schema".endpoint AS e
        SET disabled_at = NULL, disabled_reason = NULL
        WHERE e.id = enable_endpoint.id
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM changed);
END;

-- Forgets an endpoint; what it had not got by then fails. Returns whether it was there.
CREATE FUNCTION :"schema".remove_endpoint(id text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    WITH gone AS (
        DELETE FROM :"schema".endpoint AS e
        WHERE e.id = remove_endpoint.id
        RETURNING 1
    )
    SELECT EXISTS (SELECT FROM gone);
END;

-- Endpoints without what is secret: of the URL its host alone, since a path or a query may hold a token.
CREATE VIEW :"schema".endpoints AS
SELECT e.id, substring(e.url FROM '^https?://(?:[^/?#]*@)?([^/?#]*)') AS host, e.matches, e.created_at,
       e.disabled_at, e.disabled_reason, e.old_until_at AS old_secret_until
FROM :"schema".endpoint AS e;
