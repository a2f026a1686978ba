-- Gives back every bell of this session.
SELECT pg_advisory_unlock_all()
