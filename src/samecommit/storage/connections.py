"""Which kind of connection a caller holds, told by the modules of its class: no driver is imported to find out.

Each kind has a `Door`: how to see whether a transaction is open, and how to run one statement on it. A door lives in its
own module and is imported when the first connection of its kind arrives, so its driver is there by then.

What is done through a door is written once, as *steps*: a generator that says what it wants of the door (`fetch`, `copy`)
and is sent what came of it. `perform` runs steps on a connection of either sort; the driver's errors are translated there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from samecommit.errors import (
    EnqueueError,
    ReadOnlyTransaction,
    SamecommitError,
    SchemaMissing,
    UnknownJob,
    UnknownQueue,
    UnsupportedConnection,
)
from samecommit.storage.query import Statement, parse

T = TypeVar("T")
Rows: TypeAlias = list[tuple[Any, ...]]
Step: TypeAlias = tuple[Any, ...]
Steps: TypeAlias = Generator[Step, Any, T]


class SyncConn(Protocol):
    """A connection or session whose ``commit()`` returns None: psycopg, psycopg2, SQLAlchemy, Django."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class _AwaitsCommit(Protocol):
    """psycopg's and SQLAlchemy's asynchronous connections and sessions."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class _Asyncpg(Protocol):
    """asyncpg's connection; with its stubs also the proxy that its pool gives."""

    def is_in_transaction(self) -> bool: ...


class _AsyncpgProxy(Protocol):
    """That proxy, to a checker without asyncpg's stubs: it sees only the few methods that are written out."""

    def _detach(self) -> Any: ...


AsyncConn: TypeAlias = _AwaitsCommit | _Asyncpg | _AsyncpgProxy


class SyncDoor(Protocol):
    """How to use one kind of plain connection; with ``copy(conn, query, data)`` where it can copy."""

    def in_transaction(self, conn: Any) -> bool: ...
    def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows: ...
    def can_copy(self, conn: Any) -> bool: ...


class AsyncDoor(Protocol):
    """How to use one kind of asynchronous connection."""

    async def in_transaction(self, conn: Any) -> bool: ...
    async def fetch(self, conn: Any, query: Statement, values: dict[str, Any]) -> Rows: ...
    async def can_copy(self, conn: Any) -> bool: ...


class NoCopy:
    """What plain doors have whose driver offers no COPY that we use."""

    def can_copy(self, _conn: Any) -> bool:
        """Whether rows can be streamed: no."""
        return False


class AsyncNoCopy:
    """What asynchronous doors have whose driver offers no COPY that we use."""

    async def can_copy(self, _conn: Any) -> bool:
        """Whether rows can be streamed: no."""
        return False


@dataclass(frozen=True, slots=True)
class DoorKind:
    """A row of the table of known kinds: class by module and name, and the door's module and attribute."""

    module: str
    cls: str
    door: str
    is_async: bool = False


KINDS = (
    DoorKind("psycopg", "Connection", "psycopg3:PsycopgDoor"),
    DoorKind("psycopg", "AsyncConnection", "psycopg3:AsyncPsycopgDoor", is_async=True),
    DoorKind("psycopg2", "connection", "psycopg2:Psycopg2Door"),
    DoorKind("asyncpg", "Connection", "asyncpg:AsyncpgDoor", is_async=True),
    DoorKind("asyncpg", "PoolConnectionProxy", "asyncpg:AsyncpgDoor", is_async=True),
    DoorKind("sqlalchemy", "Connection", "sqlalchemy:SQLAlchemyDoor"),
    DoorKind("sqlalchemy", "Session", "sqlalchemy:SQLAlchemyDoor"),
    DoorKind("sqlalchemy", "scoped_session", "sqlalchemy:SQLAlchemyDoor"),
    DoorKind("sqlalchemy", "AsyncConnection", "sqlalchemy:AsyncSQLAlchemyDoor", is_async=True),
    DoorKind("sqlalchemy", "AsyncSession", "sqlalchemy:AsyncSQLAlchemyDoor", is_async=True),
    DoorKind("sqlalchemy", "async_scoped_session", "sqlalchemy:AsyncSQLAlchemyDoor", is_async=True),
    DoorKind("django", "BaseDatabaseWrapper", "django:DjangoDoor"),
    DoorKind("django", "ConnectionProxy", "django:DjangoDoor"),
)


def door_for(conn: object) -> tuple[Any, bool]:
    """Return the door for a connection, and whether it is asynchronous.

    Raises:
        UnsupportedConnection: names the class and lists what is supported.
    """
    cls = type(conn)
    return _DOORS.get(cls) or _DOORS.setdefault(cls, _find_door(cls))


_DOORS: dict[type[Any], tuple[Any, bool]] = {}


def _find_door(cls: type[Any]) -> tuple[Any, bool]:
    for base in cls.__mro__:
        root = base.__module__.partition(".")[0]
        for kind in KINDS:
            if root == kind.module and base.__name__ == kind.cls:
                module, _, name = kind.door.partition(":")
                return getattr(import_module(f"samecommit.storage.doors.{module}"), name)(), kind.is_async
    known = ", ".join(f"{k.module} {k.cls}" for k in KINDS)
    msg = f"{cls.__module__}.{cls.__qualname__} is no connection that can carry a job: give one of {known}"
    raise UnsupportedConnection(msg)


def fetch(query: Statement, values: dict[str, Any]) -> Steps[Rows]:
    """Step: run one statement and return its rows."""
    rows: Rows = yield "fetch", query, values
    return rows


def in_transaction() -> Steps[bool]:
    """Step: find out whether what is written now waits for the caller's commit."""
    return bool((yield ("in_transaction",)))


def can_copy() -> Steps[bool]:
    """Step: find out whether rows can be streamed on this connection."""
    return bool((yield ("can_copy",)))


def copy(query: Statement, data: str) -> Steps[None]:
    """Step: stream rows in COPY's text format."""
    yield "copy", query, data


def wait(awaitable: Awaitable[T]) -> Steps[T]:
    """Step, on asynchronous connections only: wait for something that is not the database."""
    result: T = yield "wait", awaitable
    return result


def perform(conn: Any, steps: Steps[T]) -> Any:
    """Run steps on the connection and return their result; a coroutine of it when the connection is asynchronous.

    Nothing is done before the first step runs: an asynchronous call that is not awaited leaves no trace.

    Raises:
        SamecommitError: in place of the driver's error where there is one of ours; the driver's is its ``__cause__``.
    """
    door, is_async = door_for(conn)
    return _perform_async(door, conn, steps) if is_async else _perform(door, conn, steps)


def _perform(door: Any, conn: Any, steps: Steps[T]) -> T:
    try:
        name, *args = next(steps)
        while True:
            try:
                value = getattr(door, name)(conn, *args)
            except BaseException as error:  # noqa: BLE001 - the steps decide what to do about it
                name, *args = steps.throw(ours(error))
            else:
                name, *args = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _perform_async(door: Any, conn: Any, steps: Steps[T]) -> T:
    try:
        name, *args = next(steps)
        while True:
            try:
                value = await (args[0] if name == "wait" else getattr(door, name)(conn, *args))
            except BaseException as error:  # noqa: BLE001 - as above
                name, *args = steps.throw(error if name == "wait" else ours(error))
            else:
                name, *args = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


# without a label: they return no rows
_BEGIN, _COMMIT, _ROLLBACK = (parse("", text, "") for text in ("BEGIN", "COMMIT", "ROLLBACK"))
_SAVEPOINT, _RELEASE, _BACK = (
    parse("", text, "")
    for text in ("SAVEPOINT samecommit", "RELEASE SAVEPOINT samecommit", "ROLLBACK TO SAVEPOINT samecommit")
)


def all_or_nothing(steps: Steps[T], *, inside: bool) -> Steps[T]:
    """Run steps in a savepoint (``inside`` a transaction) or in a transaction of their own: when they fail, nothing stays."""
    begin, end, undo = (
        (_SAVEPOINT, _RELEASE, (_BACK, _RELEASE))
        if inside
        else (  # without a label: they return no rows
            _BEGIN,
            _COMMIT,
            (_ROLLBACK,),
        )
    )
    yield from fetch(begin, {})
    try:
        result = yield from steps
    except GeneratorExit:
        raise
    except BaseException as error:
        try:
            for query in undo:
                yield from fetch(query, {})
        except Exception as failure:  # noqa: BLE001 - the connection is gone, and with it what was written
            error.add_note(f"and it could not be undone: {failure}")
        raise
    yield from fetch(end, {})
    return result


def sqlstate_of(error: BaseException | None) -> str | None:
    """Return the SQLSTATE that a driver's or framework's error carries."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or _fields(error).get("C")


def _fields(error: BaseException | None) -> dict[str, str]:
    """Return the server's fields of an error, as pg8000 gives them."""
    first = error.args[0] if error is not None and error.args else None
    return cast("dict[str, str]", first) if isinstance(first, dict) else {}


def ours(error: BaseException) -> BaseException:
    """Return our own error for what the database said, else the error itself."""
    for candidate in (error, getattr(error, "orig", None), error.__cause__):
        if (state := sqlstate_of(candidate)) in _OURS:
            kind, advice = _OURS[state]
            translated = kind(_first_line(candidate) + advice)
            translated.__cause__ = error
            return translated
    return error


_OURS: dict[str | None, tuple[type[SamecommitError], str]] = {
    "SC001": (UnknownQueue, ": make it with samecommit queues create, or start a worker"),
    "SC002": (UnknownJob, ""),
    "SC004": (EnqueueError, ""),
    "25006": (
        ReadOnlyTransaction,
        ": this is a standby or a read-only transaction; use one that may write, on the primary",
    ),
    "3F000": (SchemaMissing, ": run samecommit migrate on this database, or name another with App(schema=...)"),
    "42883": (SchemaMissing, ": run samecommit migrate on this database, or name another with App(schema=...)"),
}


def _first_line(error: BaseException | None) -> str:
    text = _fields(error).get("M") or str(error)
    return text.splitlines()[0] if text else type(error).__name__
