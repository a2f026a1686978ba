-- Whether this role may write jobs without the contract's functions: what COPY in `enqueue_many` needs.
SELECT pg_catalog.has_table_privilege(:'schema.job'::regclass, 'INSERT')
       AND pg_catalog.has_table_privilege(:'schema.body'::regclass, 'INSERT')
       AND pg_catalog.has_table_privilege(:'schema.queue'::regclass, 'SELECT')
       AND pg_catalog.has_sequence_privilege(:'schema.job_id_seq'::regclass, 'USAGE')
       AND pg_catalog.has_sequence_privilege(:'schema.pos_seq'::regclass, 'USAGE')
       AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
FROM pg_catalog.pg_proc AS p
WHERE p.proname = 'ring' AND p.pronamespace = (SELECT c.relnamespace FROM pg_catalog.pg_class AS c WHERE c.oid = :'schema.job'::regclass)
