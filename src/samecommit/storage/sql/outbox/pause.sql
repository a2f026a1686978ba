-- Stops a destination, through the contract's function; NULL when there is none. Locks its row.
SELECT :"schema".pause_destination(:destination::text, :reason::text) AS is_done
