-- Makes the table of positions, when it is missing.
CREATE TABLE IF NOT EXISTS :"schema".position (
    target   text PRIMARY KEY,
    position text NOT NULL
)
