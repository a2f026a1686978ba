-- Drops a day that was detached, unless another process was quicker.
DROP TABLE IF EXISTS :"schema".:"child"
