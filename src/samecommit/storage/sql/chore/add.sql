-- Makes the chores' rows; the ones that are there stay. Inserts only.
INSERT INTO :"schema".chore (name)
SELECT unnest(:names::text[])
ON CONFLICT (name) DO NOTHING
