-- Lets a destination go on, through the contract's function; NULL when there is none. Locks its row.
SELECT :"schema".resume_destination(:destination::text) AS is_done
