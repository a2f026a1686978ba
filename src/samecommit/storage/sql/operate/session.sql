-- What an operator's transaction sets, for itself only: a transaction pooler lends the session to others afterwards.
SELECT set_config('search_path', 'pg_catalog', true), set_config('timezone', 'UTC', true),
       set_config('statement_timeout', '30s', true), set_config('lock_timeout', '5s', true)
