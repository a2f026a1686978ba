-- The first and the last number of the log, when it begins, and whether days before that have been dropped, and what time it is. No locks.
SELECT e.oldest, e.newest, b.begins_at, b.is_cut, clock_timestamp() AS now
FROM :"schema".log_ends() AS e
CROSS JOIN :"schema".log_begin() AS b
