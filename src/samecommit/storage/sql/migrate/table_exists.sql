-- Whether anything is installed in the schema. No locks.
SELECT to_regclass(:'schema.migration') IS NOT NULL
