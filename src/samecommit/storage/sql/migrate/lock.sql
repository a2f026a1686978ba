-- One migrator at a time for each schema: a session-level lock, waited for until lock_timeout.
SELECT pg_advisory_lock(1935762286, hashtext(:'schema'))
