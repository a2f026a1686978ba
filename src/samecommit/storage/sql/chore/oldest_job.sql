-- When the oldest of the next :room live jobs behind :after was enqueued, and the last of their ids; NULL: there is none. No index
-- has that date, and all of ten million jobs are not read within a statement's time. No locks; relies on the primary key.
SELECT min(part.created_at), max(part.id)
FROM (
    SELECT j.id, j.created_at
    FROM :"schema".job AS j
    WHERE j.id > :after::bigint
    ORDER BY j.id
    LIMIT :room::int
) AS part
