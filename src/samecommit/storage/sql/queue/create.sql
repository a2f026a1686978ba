-- Makes a queue unless it is there; returns its id. Locks one queue row when it changes it.
SELECT :"schema".create_queue(:name::text, :retention::text, :max_attempts::int)
