-- Gives an endpoint a new secret, and keeps the one before for so long; the new one. Locks one row.
SELECT :"schema".rotate_endpoint(:id::text, :secret::text, make_interval(secs => :keep_seconds::float8))
