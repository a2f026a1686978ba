-- The functions whose text names the schema, as statements that make them anew. No locks.
SELECT pg_get_functiondef(p.oid)
FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = :'schema' AND p.prosqlbody IS NULL
