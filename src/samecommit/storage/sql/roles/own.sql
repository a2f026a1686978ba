-- Hands everything in the schema to the owner, and what is partitioned by day (with the function that makes days) to the
-- maintainer. Locks each table that changes hands for a moment; what is in the right hands is not touched.
DO $$
DECLARE
    change text;
BEGIN
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO %I, %I', :'schema', :'owner', :'maintainer');
    FOR change IN
        WITH home AS (
            SELECT n.oid FROM pg_catalog.pg_namespace AS n WHERE n.nspname = :'schema'
        ), item AS (
            SELECT format('ALTER %s %s', CASE c.relkind WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END, c.oid::regclass) AS verb, c.relowner AS has,
                   CASE WHEN c.relkind = 'p' OR c.relispartition THEN :'maintainer' ELSE :'owner' END AS wanted
            FROM home
            JOIN pg_catalog.pg_class AS c ON c.relnamespace = home.oid
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'c')
              AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d
                              WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
                                AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.deptype IN ('a', 'i')
                                AND c.relkind = 'S')
            UNION ALL
            SELECT format('ALTER ROUTINE %s', p.oid::regprocedure), p.proowner,
                   CASE p.proname WHEN 'make_day' THEN :'maintainer' ELSE :'owner' END
            FROM home
            JOIN pg_catalog.pg_proc AS p ON p.pronamespace = home.oid
            UNION ALL
            SELECT format('ALTER SCHEMA %I', :'schema'), n.nspowner, :'owner'
            FROM home
            JOIN pg_catalog.pg_namespace AS n ON n.oid = home.oid
            WHERE has_database_privilege(current_database(), 'CREATE')
        )
        SELECT format('%s OWNER TO %I', item.verb, item.wanted)
        FROM item
        JOIN pg_catalog.pg_roles AS r ON r.rolname = item.wanted
        WHERE item.has <> r.oid
    LOOP
        EXECUTE change;
    END LOOP;
END
$$
