-- Sends to an endpoint again; whether it is there. Locks one row.
SELECT :"schema".enable_endpoint(:id::text)
