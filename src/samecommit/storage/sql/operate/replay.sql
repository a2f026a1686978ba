-- Makes new jobs from old ones, through the contract's function. Inserts.
SELECT * FROM :"schema".replay(:ids::bigint[], :patch::jsonb, :queue::text, :keep_effect_key::boolean)
