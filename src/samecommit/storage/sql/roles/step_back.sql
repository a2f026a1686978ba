-- Becomes the session's own role again.
RESET ROLE
