-- The prefix of the roles in use, if there are any. No locks.
SELECT value #>> '{}' FROM :"schema".setting WHERE name = 'roles'
