"""psycopg 3, plain and asynchronous."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from samecommit.storage.connections import Rows
from samecommit.storage.query import Statement


def _is_open(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    # without autocommit the next statement begins a transaction that the caller ends
    return not conn.autocommit or conn.info.transaction_status != TransactionStatus.IDLE


class PsycopgDoor:
    """``psycopg.Connection``."""

    def in_transaction(self, conn: psycopg.Connection[Any]) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return _is_open(conn)

    def transaction(self, conn: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
        """Open a transaction (or a savepoint inside one)."""
        return conn.transaction()

    def fetch(self, conn: psycopg.Connection[Any], query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples, whatever row factory the connection has."""
        cursor = psycopg.RawCursor(conn, row_factory=tuple_row)
        return cursor.execute(query.text, query.bind(values)).fetchall()


class AsyncPsycopgDoor:
    """``psycopg.AsyncConnection``."""

    async def in_transaction(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return _is_open(conn)

    def transaction(self, conn: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[Any]:
        """Open a transaction (or a savepoint inside one)."""
        return conn.transaction()

    async def fetch(self, conn: psycopg.AsyncConnection[Any], query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples, whatever row factory the connection has."""
        cursor = psycopg.AsyncRawCursor(conn, row_factory=tuple_row)
        await cursor.execute(query.text, query.bind(values))
        return await cursor.fetchall()
