-- Remembers the roles' prefix, so that a later migration gives them what is new.
INSERT INTO :"schema".setting AS s (name, value)
VALUES ('roles', to_jsonb(:prefix::text))
ON CONFLICT (name) DO UPDATE SET value = excluded.value
