"""Which kind of connection a caller holds, told by the modules of its class: no driver is imported to find out.

Each kind has a `Door`: how to see whether a transaction is open, and how to run one statement on it. A door lives in its
own module and is imported when the first connection of its kind arrives, so its driver is there by then.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from samecommit.errors import UnknownQueue, UnsupportedConnection
from samecommit.storage.query import Statement

Rows: TypeAlias = list[tuple[Any, ...]]


class SyncConn(Protocol):
    """A connection or session whose ``commit()`` returns None: psycopg, psycopg2, SQLAlchemy, Django."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class _AwaitsCommit(Protocol):
    """psycopg's and SQLAlchemy's asynchronous connections and sessions."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class _Asyncpg(Protocol):
    """asyncpg's connection, and the proxy that its pool gives."""

    def is_in_transaction(self) -> bool: ...


AsyncConn: TypeAlias = _AwaitsCommit | _Asyncpg


class SyncDoor(Protocol):
    """How to use one kind of plain connection."""

    def in_transaction(self, conn: Any) -> bool: ...
    def transaction(self, conn: Any) -> AbstractContextManager[Any]: ...
    def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows: ...


class AsyncDoor(Protocol):
    """How to use one kind of asynchronous connection."""

    async def in_transaction(self, conn: Any) -> bool: ...
    def transaction(self, conn: Any) -> AbstractAsyncContextManager[Any]: ...
    async def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows: ...


@dataclass(frozen=True, slots=True)
class DoorKind:
    """A row of the table of known kinds: class by module and name, and the door's module and attribute."""

    module: str
    cls: str
    door: str
    is_async: bool = False


KINDS = (
    DoorKind("psycopg", "AsyncConnection", "psycopg3:AsyncPsycopgDoor", is_async=True),
    DoorKind("psycopg", "Connection", "psycopg3:PsycopgDoor"),
    DoorKind("sqlalchemy", "Session", "sqlalchemy:SessionDoor"),
    DoorKind("sqlalchemy", "Connection", "sqlalchemy:SessionDoor"),
)


def door_for(conn: Any) -> tuple[Any, bool]:
    """Return the door for a connection, and whether it is asynchronous.

    Raises:
        UnsupportedConnection: names the class and lists what is supported.
    """
    return _door_for_class(conn.__class__)


@lru_cache(maxsize=256)
def _door_for_class(cls: type) -> tuple[Any, bool]:
    for base in cls.__mro__:
        root = base.__module__.partition(".")[0]
        for kind in KINDS:
            if root == kind.module and base.__name__ == kind.cls:
                module, _, name = kind.door.partition(":")
                return getattr(import_module(f"samecommit.storage.doors.{module}"), name)(), kind.is_async
    known = ", ".join(f"{k.module} {k.cls}" for k in KINDS)
    msg = f"{cls.__module__}.{cls.__qualname__} is no connection that can carry a job: give one of {known}"
    raise UnsupportedConnection(msg)


def translate(error: BaseException) -> BaseException:
    """Return our own error for a driver's one that carries an SQLSTATE of class SC, else the error itself."""
    for candidate in (error, getattr(error, "orig", None), getattr(error, "__cause__", None)):
        state = getattr(candidate, "sqlstate", None) or getattr(candidate, "pgcode", None)
        if state == "SC001":
            return UnknownQueue(
                str(candidate).splitlines()[0] + ": make it with samecommit queues create, or start a worker"
            )
    return error
