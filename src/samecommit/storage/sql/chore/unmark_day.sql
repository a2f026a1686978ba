-- Takes back what mark_day wrote: the day was not taken out of its table.
COMMENT ON TABLE :"schema".:"child" IS NULL
