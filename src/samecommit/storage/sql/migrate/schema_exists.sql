-- Whether the schema is there: a role that may not create schemas can be given one. No locks.
SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = :'schema'
