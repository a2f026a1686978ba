-- Makes the table of copied events, when it is missing.
CREATE TABLE IF NOT EXISTS :"schema".event (
    arrival      bigint GENERATED ALWAYS AS IDENTITY,
    id           text NOT NULL,
    source       text NOT NULL,
    replay       int NOT NULL DEFAULT 0,
    destination  text NOT NULL,
    position     text,
    type         text NOT NULL,
    key          text,
    attributes   jsonb NOT NULL,
    content_type text NOT NULL,
    data         bytea NOT NULL,
    copied_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (destination, id, source, replay)
)
