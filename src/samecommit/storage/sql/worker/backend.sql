-- This session's backend, so that the reaper can end it when its process stops answering. No locks.
SELECT pg_backend_pid(), (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
