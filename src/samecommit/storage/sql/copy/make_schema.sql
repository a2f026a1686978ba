-- Makes the schema of copied events, when it is missing.
CREATE SCHEMA IF NOT EXISTS :"schema"
