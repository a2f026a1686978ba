-- Which installation this is, the bell's number, and why nobody may work here, if so. No locks.
SELECT (SELECT value #>> '{}' FROM :"schema".setting WHERE name = 'installation'),
       :'schema.queue'::regclass::oid::bigint,
       :"schema".away()
