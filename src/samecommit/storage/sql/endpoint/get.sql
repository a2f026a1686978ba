-- An endpoint as it is now: its URL, the secrets that sign (the newest first), its types, and whether it is enabled. No locks;
-- by primary key.
SELECT e.url, array_remove(ARRAY[e.secret, CASE WHEN e.old_until_at > clock_timestamp() THEN e.old_secret END], NULL),
       e.matches, e.disabled_at IS NULL
FROM :"schema".endpoint AS e
WHERE e.id = :id::text
