-- The numbers of events by their ids, in one stretch of the log. No locks; a walk of the primary key.
SELECT f.id, f.number FROM :"schema".find_events(:ids::text[], :after::bigint, :upto::bigint) AS f
