"""asyncpg: a connection, or the proxy that a pool gives. Its COPY is not used: `enqueue_many` goes through the function."""

from __future__ import annotations

from typing import Any

from samecommit.storage.connections import AsyncNoCopy, Rows
from samecommit.storage.query import Statement


class AsyncpgDoor(AsyncNoCopy):
    """``asyncpg.Connection`` and ``asyncpg.pool.PoolConnectionProxy``."""

    async def in_transaction(self, conn: Any) -> bool:
        """Whether what is written now waits for the caller's commit."""
        return bool(conn.is_in_transaction())

    async def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows:
        """Run one statement and return its rows as tuples."""
        return [tuple(row) for row in await conn.fetch(query.text, *query.bind(values))]
