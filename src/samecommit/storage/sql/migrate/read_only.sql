-- Whether this server is a standby, and whether sessions here begin their transactions read-only. No locks.
SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean
