"""SQLAlchemy 2: Connection and Session, on any driver.

A Session flushes first, as ``session.execute`` does: rows that a trigger or a foreign key needs are there. Statements go
through ``text()`` with named binds, so that SQLAlchemy writes its driver's placeholders.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import sqlalchemy

from samecommit.storage.connections import Rows
from samecommit.storage.query import Statement


@lru_cache(maxsize=256)
def as_text(query: Statement) -> sqlalchemy.TextClause:
    """Return the statement with named binds; colons that are no binds are escaped."""
    escaped = query.text.replace(":", "\\:")
    for number in range(len(query.parameters), 0, -1):
        escaped = escaped.replace(f"${number}", f":{query.parameters[number - 1]}")
    return sqlalchemy.text(escaped)


class SessionDoor:
    """``Session`` and ``Connection``: both begin a transaction by themselves, unless the engine is in AUTOCOMMIT."""

    def in_transaction(self, conn: Any) -> bool:
        """Whether what is written now waits for the caller's commit."""
        connection = conn.connection() if hasattr(conn, "flush") else conn
        return str(connection.get_isolation_level()).upper() != "AUTOCOMMIT"

    def transaction(self, conn: Any) -> AbstractContextManager[Any]:
        """Open a transaction, or a savepoint inside one."""
        return conn.begin_nested() if conn.in_transaction() else conn.begin()

    def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples."""
        if hasattr(conn, "flush"):
            conn.flush()
        return [tuple(row) for row in conn.execute(as_text(query), {name: values[name] for name in query.parameters})]
