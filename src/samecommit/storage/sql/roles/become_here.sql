-- Becomes the role that owns the days, until the transaction ends.
SET LOCAL ROLE :"keeper"
