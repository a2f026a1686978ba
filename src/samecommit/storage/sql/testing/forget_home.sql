-- Lets every copy of this database work: for a template that test databases are made from. Locks one row.
DELETE FROM :"schema".setting WHERE name = 'home'
