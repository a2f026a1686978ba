-- Lets workers claim from a queue again, through the contract's function. Locks the queue's row.
SELECT :"schema".resume(:queue::text)
