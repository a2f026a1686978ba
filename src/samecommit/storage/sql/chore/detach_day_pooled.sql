-- Takes a day out of its table in a transaction, for a pooled connection: nothing that bounds its waits can be set outside of
-- one. Locks the table for a moment, and gives up for now when an open report holds it.
ALTER TABLE :"schema".:"parent" DETACH PARTITION :"schema".:"child"
