-- What became of an event at a destination, or why it has not arrived. No locks.
SELECT * FROM :"schema".why_event(:destination::text, :number::bigint)
