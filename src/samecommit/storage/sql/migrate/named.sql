-- The name that the schema had when its functions were made. No locks.
SELECT value #>> '{}' FROM :"schema".setting WHERE name = 'schema'
