"""Django's database connection: ``django.db.connection``, ``connections["orders"]``, inside ``transaction.atomic()``."""

from __future__ import annotations

from typing import Any

from samecommit.errors import UnsupportedConnection
from samecommit.storage.connections import Rows, door_for
from samecommit.storage.query import Statement, with_percents


class DjangoDoor:
    """``BaseDatabaseWrapper`` and the proxy in front of it, on psycopg 3 or 2."""

    def in_transaction(self, conn: Any) -> bool:
        """Whether what is written now waits for a commit: inside ``atomic()``, or with autocommit set off."""
        if conn.vendor != "postgresql":
            msg = f"this Django connection is to {conn.vendor}: a job is stored in PostgreSQL, in the same transaction"
            raise UnsupportedConnection(msg)
        return bool(conn.in_atomic_block or not conn.get_autocommit())

    def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples."""
        text, names = with_percents(query)
        with conn.cursor() as cursor:
            cursor.execute(text, [values[name] for name in names] or None)
            return list(cursor.fetchall()) if cursor.description else []

    def can_copy(self, conn: Any) -> bool:
        """Whether the driver below is one whose COPY we use."""
        raw = conn.connection
        return type(raw).__module__.partition(".")[0] == "psycopg" and bool(door_for(raw)[0].can_copy(raw))

    def copy(self, conn: Any, query: Statement, data: str) -> None:
        """Stream rows in COPY's text format, on the driver's connection."""
        raw = conn.connection
        door_for(raw)[0].copy(raw, query, data)
