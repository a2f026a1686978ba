-- The payloads that are kept apart, for claimed jobs; created_at picks the day. No locks; relies on body's key.
SELECT b.job_id, b.payload::text
FROM unnest(:ids::bigint[], :created_ats::timestamptz[]) AS wanted (id, created_at)
CROSS JOIN LATERAL (
    SELECT body.job_id, body.payload
    FROM :"schema".body
    WHERE body.job_id = wanted.id AND body.created_at = wanted.created_at
) AS b
