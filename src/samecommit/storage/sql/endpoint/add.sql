-- Adds an endpoint or changes its URL and types; its secret. Locks one row.
SELECT :"schema".add_endpoint(:id::text, :url::text, :matches::text[], :secret::text)
