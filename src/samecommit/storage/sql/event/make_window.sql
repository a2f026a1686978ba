-- Makes a window when something has become visible, and tells the newest one's number; one that somebody else makes at the
-- same moment is told the next time. Relies on event_window_scan.
SELECT greatest(:"schema".make_window(), (SELECT max(w.n) FROM :"schema".event_window AS w))
