-- Drops a day that was detached.
DROP TABLE :"schema".:"child"
