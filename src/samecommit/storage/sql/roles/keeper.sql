-- Who owns the days, when this session has to become that role to drop one; NULL when it is that role already. No locks.
SELECT CASE WHEN c.relowner <> r.oid THEN pg_get_userbyid(c.relowner)::text END, pg_has_role(r.oid, c.relowner, 'MEMBER')
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_roles AS r ON r.rolname = current_user
WHERE c.oid = :'schema.job_history'::regclass
