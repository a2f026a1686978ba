-- Makes the list of applied migrations unless it is there.
CREATE TABLE IF NOT EXISTS :"schema".migration (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
