-- Which of these pairs still belong to their claim: what a finish did not return is locked by somebody or lost. No locks.
SELECT j.id
FROM unnest(:ids::bigint[], :claim_ids::bigint[]) AS wanted (id, claim_id)
JOIN :"schema".job AS j ON j.id = wanted.id AND j.claim_id = wanted.claim_id
