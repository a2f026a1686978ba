-- The payloads that are kept apart, for claimed jobs; created_at picks the day. No locks; relies on body's key. OFFSET keeps
-- the lookup a lookup: a plan that was made while the table was empty would else join with all that it holds later.
SELECT b.job_id, b.payload::text
FROM unnest(:ids::bigint[], :created_ats::timestamptz[]) AS wanted (id, created_at)
CROSS JOIN LATERAL (
    SELECT body.job_id, body.payload
    FROM :"schema".body
    WHERE body.job_id = wanted.id AND body.created_at = wanted.created_at
    OFFSET 0
) AS b
