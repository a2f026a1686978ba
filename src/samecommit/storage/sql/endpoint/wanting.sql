-- The endpoints that want events of a type. Reads all of them; no locks.
SELECT e.id
FROM :"schema".endpoint AS e
WHERE e.disabled_at IS NULL
  AND EXISTS (SELECT FROM unnest(e.matches) AS m (pattern)
              WHERE m.pattern = :type::text
                 OR (right(m.pattern, 1) = '*' AND starts_with(:type::text, left(m.pattern, -1))))
ORDER BY e.id
