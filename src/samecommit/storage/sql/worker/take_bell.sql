-- Waits up to a second for a slot's exclusive lock; false when it was not had. The wait is bounded here: a waiting session
-- holds a snapshot, and an idle worker must not hold vacuum back. See runtime/doorbell.py.
SELECT :"schema".take_bell(:slot::int)
