-- Notes the name that the functions know.
INSERT INTO :"schema".setting AS s (name, value)
VALUES ('schema', to_jsonb(:'schema'::text))
ON CONFLICT (name) DO UPDATE SET value = excluded.value
