"""SQLAlchemy 2: connections and sessions, plain and asynchronous, scoped or not, on any of its PostgreSQL drivers.

A session flushes first unless its autoflush is off: rows that a trigger or a foreign key needs are there. Statements go
through ``text()`` with named binds, so that SQLAlchemy writes its driver's placeholders and sees what is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import sqlalchemy

from samecommit.errors import UnsupportedConnection
from samecommit.storage.connections import Rows, door_for
from samecommit.storage.query import Statement

T = TypeVar("T")


@lru_cache(maxsize=256)
def as_text(query: Statement) -> sqlalchemy.TextClause:
    """Return the statement with named binds; colons and backslashes that are none are escaped."""
    return sqlalchemy.text(query.spelled(lambda name: f":{name}", lambda text: text.replace(":", "\\:"))[0])


def _connection(conn: Any) -> sqlalchemy.Connection:
    """Return the connection that a session works on; the session has written what it held back."""
    if hasattr(conn, "registry"):
        conn = conn()
    if hasattr(conn, "flush"):
        if conn.autoflush:
            conn.flush()
        conn = conn.connection()
    if conn.dialect.name != "postgresql":
        msg = f"this SQLAlchemy connection is to {conn.dialect.name}: a job is stored in PostgreSQL, in the same transaction"
        raise UnsupportedConnection(msg)
    found: sqlalchemy.Connection = conn
    return found


def _driver_connection(conn: Any) -> Any:
    return _connection(conn).connection.driver_connection


class SQLAlchemyDoor:
    """``Connection``, ``Session`` and ``scoped_session``: they begin by themselves, unless the engine is in AUTOCOMMIT."""

    def in_transaction(self, conn: Any) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return not getattr(_connection(conn).connection.dbapi_connection, "autocommit", False)

    def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples."""
        result = _connection(conn).execute(as_text(query), {name: values[name] for name in query.parameters})
        return [tuple(row) for row in result] if result.returns_rows else []

    def can_copy(self, conn: Any) -> bool:
        """Whether the driver below is one whose COPY we use."""
        raw = _driver_connection(conn)
        return _is_psycopg(raw) and bool(door_for(raw)[0].can_copy(raw))

    def copy(self, conn: Any, query: Statement, data: str) -> None:
        """Stream rows in COPY's text format, on the driver's connection."""
        raw = _driver_connection(conn)
        door_for(raw)[0].copy(raw, query, data)


class AsyncSQLAlchemyDoor:
    """``AsyncConnection``, ``AsyncSession`` and ``async_scoped_session``: the plain ones, run in SQLAlchemy's way."""

    _plain = SQLAlchemyDoor()

    async def _run(self, conn: Any, function: Callable[..., T], *args: Any) -> T:
        here = conn() if hasattr(conn, "registry") else conn
        result: T = await here.run_sync(function, *args)
        return result

    async def in_transaction(self, conn: Any) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return await self._run(conn, self._plain.in_transaction)

    async def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples."""
        return await self._run(conn, self._plain.fetch, query, values)

    async def can_copy(self, conn: Any) -> bool:
        """Whether the driver below is one whose COPY we use."""
        raw = await self._run(conn, _driver_connection)
        return _is_psycopg(raw) and bool(await door_for(raw)[0].can_copy(raw))

    async def copy(self, conn: Any, query: Statement, data: str) -> None:
        """Stream rows in COPY's text format, on the driver's connection."""
        raw = await self._run(conn, _driver_connection)
        await door_for(raw)[0].copy(raw, query, data)


def _is_psycopg(raw: Any) -> bool:
    return type(raw).__module__.partition(".")[0] == "psycopg"
