-- Forgets a destination, through the contract's function; false when there is none. Locks its rows.
SELECT :"schema".remove_destination(:destination::text) AS is_done
