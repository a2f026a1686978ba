-- Notes that a migration was applied, in the migration's own transaction.
INSERT INTO :"schema".migration (version, name) VALUES (:version::int, :name::text)
