"""psycopg 3, plain and asynchronous."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from samecommit.storage.connections import Rows
from samecommit.storage.query import Statement


def _is_open(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    # without autocommit the next statement begins a transaction that the caller ends
    return not conn.autocommit or conn.info.transaction_status != TransactionStatus.IDLE


def _can_copy(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return conn.pgconn.pipeline_status == PipelineStatus.OFF


class PsycopgDoor:
    """``psycopg.Connection``."""

    def in_transaction(self, conn: psycopg.Connection[Any]) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return _is_open(conn)

    def fetch(self, conn: psycopg.Connection[Any], query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples, whatever factories the connection has."""
        cursor = psycopg.RawCursor(conn, row_factory=tuple_row).execute(query.text, query.bind(values))
        return cursor.fetchall() if query.label else []  # a pipeline knows of rows only when they are fetched

    def can_copy(self, conn: psycopg.Connection[Any]) -> bool:
        """Whether rows can be streamed: not within a pipeline."""
        return _can_copy(conn)

    def copy(self, conn: psycopg.Connection[Any], query: Statement, data: str) -> None:
        """Stream rows in COPY's text format."""
        with psycopg.RawCursor(conn).copy(query.text) as stream:
            stream.write(data)


class AsyncPsycopgDoor:
    """``psycopg.AsyncConnection``."""

    async def in_transaction(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return _is_open(conn)

    async def fetch(self, conn: psycopg.AsyncConnection[Any], query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples, whatever factories the connection has."""
        cursor = psycopg.AsyncRawCursor(conn, row_factory=tuple_row)
        await cursor.execute(query.text, query.bind(values))
        return await cursor.fetchall() if query.label else []

    async def can_copy(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """Whether rows can be streamed: not within a pipeline."""
        return _can_copy(conn)

    async def copy(self, conn: psycopg.AsyncConnection[Any], query: Statement, data: str) -> None:
        """Stream rows in COPY's text format."""
        async with psycopg.AsyncRawCursor(conn).copy(query.text) as stream:
            await stream.write(data)
