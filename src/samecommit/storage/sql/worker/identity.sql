-- Which database this is: the installation, whether the server was cloned since, and the bell's number. No locks.
SELECT (SELECT value #>> '{}' FROM :"schema".setting WHERE name = 'installation'),
       (SELECT value #>> '{}' FROM :"schema".setting WHERE name = 'system_identifier')
           IS NOT DISTINCT FROM (SELECT system_identifier::text FROM pg_control_system()),
       :'schema.queue'::regclass::oid::bigint
