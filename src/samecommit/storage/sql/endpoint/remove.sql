-- Forgets an endpoint; whether it was there. Locks one row.
SELECT :"schema".remove_endpoint(:id::text)
