-- Stores jobs through the contract's function, in the caller's transaction; one row for each, in their order.
SELECT e.id, e.created, e.replaced
FROM :"schema".enqueue_many(:jobs::text::jsonb) AS e
