-- What an operator's transaction sets, for itself only: a transaction pooler lends the session to others afterwards.
-- Every list walks an index; the alternatives, which read the whole table to show fifty rows of it, are switched off.
SELECT set_config(name, value, true)
FROM (VALUES ('search_path', 'pg_catalog'), ('timezone', 'UTC'), ('datestyle', 'ISO'),
             ('statement_timeout', '30s'), ('lock_timeout', '5s'),
             ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('jit', 'off')) AS setting (name, value)
