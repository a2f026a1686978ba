-- Makes the roles that are missing, and their memberships. Nobody can log in as one of them: they are granted to users.
-- The owner may act as the maintainer, who owns the tables that are partitioned by day. A worker may become the maintainer
-- (SET ROLE) to drop days, and has none of its rights otherwise. Whoever runs this may go on to migrate.
DO $$
DECLARE
    role_name text;
    is_new_style CONSTANT boolean := current_setting('server_version_num')::int >= 160000;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[:'owner', :'maintainer', :'producer', :'operator', :'viewer', :'worker'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN %s', role_name, CASE role_name WHEN :'worker' THEN 'NOINHERIT' END);
        END IF;
    END LOOP;
    IF NOT pg_has_role(current_user, :'owner', 'USAGE') THEN
        EXECUTE format('GRANT %I TO %I %s', :'owner', current_user,
                       CASE WHEN is_new_style THEN 'WITH INHERIT TRUE, SET TRUE' END);
    END IF;
    IF NOT pg_has_role(:'owner', :'maintainer', 'USAGE') THEN
        EXECUTE format('GRANT %I TO %I', :'maintainer', :'owner');
    END IF;
    IF NOT pg_has_role(:'worker', :'maintainer', 'MEMBER') THEN
        EXECUTE format('GRANT %I TO %I %s', :'maintainer', :'worker',
                       CASE WHEN is_new_style THEN 'WITH INHERIT FALSE, SET TRUE' END);
    END IF;
END
$$
