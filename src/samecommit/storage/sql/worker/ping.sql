-- Shows that the connection still answers. No locks.
SELECT 1
