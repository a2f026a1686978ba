-- A person's word on a parked event, through the contract's function; what it is now when it cannot be decided. Locks its row.
SELECT CASE WHEN :"schema".resolve(:destination::text, :id::bigint, :verdict::text, :reference::text) THEN 'resolved'
            ELSE coalesce((SELECT p.state FROM :"schema".parked AS p
                           WHERE p.destination = :destination::text AND p.number = :id::bigint), 'not found') END AS outcome
