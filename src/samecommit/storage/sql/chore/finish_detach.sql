-- Ends a detach that was interrupted half-way.
ALTER TABLE :"schema".:"parent" DETACH PARTITION :"schema".:"child" FINALIZE
