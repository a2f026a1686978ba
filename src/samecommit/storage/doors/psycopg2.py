"""psycopg 2, plain: itself, or below SQLAlchemy and Django. Its COPY is not used: `enqueue_many` goes through the function."""

from __future__ import annotations

from typing import Any

from psycopg2.extensions import TRANSACTION_STATUS_IDLE, cursor

from samecommit.storage.connections import NoCopy, Rows
from samecommit.storage.query import Statement, with_percents


class Psycopg2Door(NoCopy):
    """``psycopg2.extensions.connection``."""

    def in_transaction(self, conn: Any) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return not conn.autocommit or conn.info.transaction_status != TRANSACTION_STATUS_IDLE

    def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples, whatever cursor the connection makes."""
        text, names = with_percents(query)
        with conn.cursor(cursor_factory=cursor) as running:
            running.execute(text, [values[name] for name in names] or None)
            return running.fetchall() if running.description else []
