-- Ends a replay, through the contract's function; false when it has ended or there is none. Locks its rows.
SELECT :"schema".cancel_replay(:replay::int) AS is_done
