-- Gives a target its row, which `send` locks, and returns its position, '' when nothing was stored yet.
INSERT INTO :"schema".position AS p (target, position)
VALUES (:target::text, '')
ON CONFLICT (target) DO UPDATE SET position = p.position
RETURNING p.position
