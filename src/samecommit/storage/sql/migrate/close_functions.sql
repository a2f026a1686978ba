-- Takes back what PostgreSQL gives everybody: a function may be executed by its owner and by whom it was granted to.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA :"schema" FROM PUBLIC
