-- Writes on a day that it is about to be dropped: if that is cut off after the detach, its name and this mark tell whose it is.
COMMENT ON TABLE :"schema".:"child" IS 'samecommit: past its time, detached to be dropped'
