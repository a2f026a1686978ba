-- Takes the chores that are due by moving their next dates ahead, in a short transaction of its own: a stopped process then
-- holds no lock, and somebody else takes the next turn. Of each name it returns whether it was taken and, if not, the seconds
-- until it is due. Names and holds are parallel arrays. Locks their rows, skipping busy ones.
WITH wanted AS (
    SELECT * FROM unnest(:names::text[], :hold_seconds::float8[]) AS w (name, hold_seconds)
), taken AS (
    UPDATE :"schema".chore AS c
    SET due_at = clock_timestamp() + make_interval(secs => wanted.hold_seconds), taken_by = :lease_id::bigint,
        started_at = clock_timestamp(), last_error = NULL
    FROM wanted
    WHERE c.name = wanted.name
      AND c.ctid = ANY (ARRAY(
        SELECT d.ctid FROM :"schema".chore AS d
        WHERE d.name = ANY (:names::text[]) AND (d.due_at <= clock_timestamp() OR d.taken_by = :lease_id::bigint)
        FOR UPDATE SKIP LOCKED))
    RETURNING c.name
)
SELECT c.name, taken.name IS NOT NULL, extract(epoch FROM c.due_at - clock_timestamp())::float8
FROM wanted
JOIN :"schema".chore AS c USING (name)
LEFT JOIN taken USING (name)
