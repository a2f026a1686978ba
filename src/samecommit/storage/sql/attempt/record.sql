-- Keeps what running attempts have recorded and how far they are, before they end. Fenced by (id, claim_id).
-- Locks no job row: an attempt that was taken over is refused by the lookup or by its own claim_id in the key.
INSERT INTO :"schema".attempt AS a (job_id, claim_id, claimed_at, lease_id, number, record, progress)
SELECT j.id, j.claim_id, j.claimed_at, :lease_id::bigint, j.claims, wanted.record, wanted.progress
FROM unnest(:ids::bigint[], :claim_ids::bigint[], :records::jsonb[], :progresses::jsonb[])
    AS wanted (id, claim_id, record, progress)
CROSS JOIN LATERAL (
    SELECT job.id, job.claim_id, job.claimed_at, job.claims
    FROM :"schema".job
    WHERE job.id = wanted.id AND job.claim_id = wanted.claim_id
) AS j
ON CONFLICT (job_id, claim_id, claimed_at) DO UPDATE
    SET record = CASE WHEN excluded.record IS NULL THEN a.record ELSE coalesce(a.record, '{}') || excluded.record END,
        progress = coalesce(excluded.progress, a.progress)
RETURNING a.job_id
