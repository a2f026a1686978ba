"""One statement in the caller's transaction, on a connection of any kind; asynchronous ones give a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samecommit.errors import EnqueueError, NotInTransaction
from samecommit.storage.connections import door_for, translate
from samecommit.storage.query import Statement


def write(
    conn: Any,
    query: Statement,
    values: dict[str, Any],
    *,
    made: Callable[..., Any],
    own_transaction: bool,
    outside: str,
) -> Any:
    """Run the statement and return ``made(*row)`` of its row, or a coroutine of that.

    Args:
        conn: the caller's connection or session.
        query: what to run; it returns one row.
        values: its parameters.
        made: makes the result of the row's columns.
        own_transaction: allow a connection that would commit by itself, in a transaction of the statement's own.
        outside: what to say where that is not allowed.

    Raises:
        NotInTransaction: the connection would commit by itself.
        EnqueueError: the database refused; its error is the cause.
        UnsupportedConnection: the object is no known connection.
    """
    door, is_async = door_for(conn)
    how = _write_async if is_async else _write
    return how(door, conn, query, values, made, None if own_transaction else outside)


def _write(
    door: Any, conn: Any, query: Statement, values: dict[str, Any], made: Callable[..., Any], outside: str | None
) -> Any:
    try:
        if door.in_transaction(conn):
            return made(*door.fetch(conn, query, values)[0])
        if outside is not None:
            raise NotInTransaction(outside)
        with door.transaction(conn):
            return made(*door.fetch(conn, query, values)[0])
    except EnqueueError:
        raise
    except Exception as error:
        ours = translate(error)
        if ours is error:
            raise
        raise ours from error


async def _write_async(
    door: Any, conn: Any, query: Statement, values: dict[str, Any], made: Callable[..., Any], outside: str | None
) -> Any:
    try:
        if await door.in_transaction(conn):
            return made(*(await door.fetch(conn, query, values))[0])
        if outside is not None:
            raise NotInTransaction(outside)
        async with door.transaction(conn):
            return made(*(await door.fetch(conn, query, values))[0])
    except EnqueueError:
        raise
    except Exception as error:
        ours = translate(error)
        if ours is error:
            raise
        raise ours from error
