-- Sends nothing more to an endpoint; whether it is there. Locks one row.
SELECT :"schema".disable_endpoint(:id::text, :reason::text)
