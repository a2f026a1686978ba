-- Takes a day out of its table without blocking writers; not possible inside a transaction. Waits for open reports.
ALTER TABLE :"schema".:"parent" DETACH PARTITION :"schema".:"child" CONCURRENTLY
