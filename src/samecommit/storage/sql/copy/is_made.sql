-- Whether both tables are there: making what is there needs the right to make it. No locks.
SELECT to_regclass(:'schema.event') IS NOT NULL AND to_regclass(:'schema.position') IS NOT NULL
