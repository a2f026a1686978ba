-- This session's backend, so that the reaper can end it when its process stops answering; and whether the session has the
-- settings that it asked for, which a transaction pooler may have ignored. No locks.
SELECT pg_backend_pid(), (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),
       current_setting('enable_seqscan') = 'off'
