"""One connection of a worker that heals itself, and runs statements by their label.

A link connects when it is first used, keeps its session settings over reconnects, and turns the driver's errors into
three of ours: the server went away (`LinkDown`, try again), a row or a lock was in the way (`LinkBusy`), or the statement
itself is wrong (the driver's error passes). Nothing here retries: the caller knows what is safe to repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Generator, Iterable, Mapping
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg import errors as pg

from samecommit.faultpoints import FAULTS, hit
from samecommit.storage.moments import rows_of
from samecommit.storage.query import statement, with_names
from samecommit.storage.session import (
    as_local_statement,
    as_startup_options,
    as_writer,
    refuses_options,
    session_settings,
)

Row: TypeAlias = tuple[Any, ...]
_CONNECT_SECONDS = 10
_LATE_SECONDS, _PING_SECONDS = 3.0, 5.0
_FOREVER = 86_400.0
_POOLED_LOCK_TIMEOUT = "200ms"  # whoever waits for a strong lock makes all others wait behind it
_UNITS = {"": 0.001, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_KEEPALIVE: Mapping[str, Any] = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 4,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 12_000,
}


def bigints(numbers: Iterable[int]) -> str:
    """Write numbers as an array literal: psycopg dumps lists in Python (12 % of a worker's time), this is one join."""
    return "{" + ",".join(map(str, numbers)) + "}"


def hang_up(conn: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Shut a connection's socket under whoever waits for its answer: they wake with an error at once. From any thread."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _seconds(setting: str) -> float:
    number = setting.rstrip("msinh ")
    return float(number) * _UNITS[setting[len(number) :].strip()] or math.inf


class LinkDown(Exception):
    """The server went away, refused the connection or became read-only: connect again after a pause."""


class LinkBusy(Exception):
    """A lock was not had in time, a deadlock was broken or a transaction must be repeated: nothing was changed."""


_BUSY = (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure, pg.QueryCanceled)
_DOWN = (pg.ReadOnlySqlTransaction, pg.OperationalError, pg.InterfaceError, pg.InvalidAuthorizationSpecification)


class AsyncLink:
    """A lazily opened asynchronous connection in autocommit mode; one user at a time.

    Args:
        dsn: where; asked for at each connect, so that a callable may give new credentials.
        schema: the installation's schema.
        name: shown as ``application_name``.
        durable: False lets commits be asynchronous (claims only).
        settings: session settings beside the usual ones. A server that is silent for 3 s longer than its
            ``statement_timeout`` counts as gone.

    A transaction pooler is noticed when it refuses or ignores the session's settings. From then on every statement runs in a
    transaction that sets them for itself, nothing is prepared, and the backend is not remembered: it is everybody's.
    """

    def __init__(
        self, dsn: str, schema: str, name: str, *, durable: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        self.dsn, self.schema, self.name = dsn, schema, name
        self._settings = session_settings(durable=durable, extra=settings)
        self._answer_seconds = _seconds(self._settings["statement_timeout"]) + _LATE_SECONDS
        self._conn: psycopg.AsyncConnection[Row] | None = None
        self._cursor: psycopg.AsyncRawCursor[Row] | None = None
        self.backend: tuple[int, Any] | None = None
        self.is_pooled = False
        self.keeper: str | None = None
        self.connects = 0

    def __repr__(self) -> str:
        state = "closed" if self._conn is None or self._conn.closed else f"backend {self._conn.info.backend_pid}"
        return f"<AsyncLink {self.name!r} {state}, {self.connects} connects>"

    @property
    def is_open(self) -> bool:
        """Whether a connection is up, as far as this side knows."""
        return self._conn is not None and not self._conn.closed

    async def connection(self) -> psycopg.AsyncConnection[Row]:
        """Return the open connection, connecting when needed.

        Raises:
            LinkDown: the server cannot be reached.
        """
        if self._conn is None or self._conn.closed:
            await self._open()
            assert self._conn is not None
            pid, start, has_settings = (await self.fetch("worker/backend"))[0]
            if not has_settings:
                self.is_pooled = True
                await self._open()
            self.backend = None if self.is_pooled else (pid, start)
            self._conn.prepare_threshold = None if self.is_pooled else 0
        assert self._conn is not None
        return self._conn

    async def _open(self) -> None:
        await self.close()
        try:
            self._conn = await psycopg.AsyncConnection.connect(
                self.dsn,
                autocommit=True,
                application_name=f"samecommit {self.name}"[:63],
                **as_writer(self.dsn),
                **self._options(),
            )
        except psycopg.Error as error:
            if refuses_options(error) and not self.is_pooled:
                self.is_pooled = True
                await self._open()
                return
            msg = f"cannot connect: {error}"
            raise LinkDown(msg) from error
        self._conn.prepare_threshold = None  # until the session is known to be ours alone
        self._cursor = psycopg.AsyncRawCursor(self._conn)
        self.connects += 1
        self.backend = None

    def _options(self) -> dict[str, Any]:
        return dict(_KEEPALIVE) if self.is_pooled else {**_KEEPALIVE, "options": as_startup_options(self._settings)}

    async def fetch(self, label: str, **values: Any) -> list[Row]:
        """Run the statement of that label and return its rows, decoded from the binary protocol.

        Raises:
            LinkDown: the connection was lost; whether the statement took effect is unknown.
            LinkBusy: a lock or another transaction was in the way; nothing was changed.
        """
        await self.connection()
        assert self._cursor is not None
        prepared = statement(label, self.schema)
        if FAULTS:
            hit(f"before {label}")
        try:
            with self._answering(_PING_SECONDS if label == "worker/ping" else self._answer_seconds):
                rows = await self._run(prepared.text, prepared.bind(values))
            if FAULTS:
                hit(f"after {label}")
        except _BUSY as error:
            raise LinkBusy(str(error)) from error
        except _DOWN as error:
            await self.close()
            msg = f"{label}: {error}"
            raise LinkDown(msg) from error
        return rows

    async def _run(self, text: LiteralString, values: tuple[Any, ...]) -> list[Row]:
        assert self._conn is not None
        assert self._cursor is not None
        cursor = self._cursor
        if not self.is_pooled:
            await cursor.execute(text, values, binary=True)
            return await self._rows(cursor)
        async with self._conn.transaction():
            await cursor.execute(as_local_statement(self._settings))
            await cursor.execute(text, values, binary=True)
            return await self._rows(cursor)

    async def _rows(self, cursor: psycopg.AsyncRawCursor[Row]) -> list[Row]:
        if cursor.description is None:
            return []
        try:
            return await cursor.fetchall()
        except pg.DataError:  # of the driver: the statement is done, and its rows must not be lost for one of them
            assert cursor.pgresult is not None
            return rows_of(cursor.pgresult, self._conn)

    @contextlib.contextmanager
    def _answering(self, seconds: float) -> Generator[None]:
        """Hang up on a server that does not answer in time. A cancelled task would go on waiting for the same answer."""
        conn = self._conn
        timer = asyncio.get_running_loop().call_later(
            min(seconds, _FOREVER), lambda: None if conn is None else hang_up(conn)
        )
        try:
            yield
        finally:
            timer.cancel()

    async def define(self, label: str, **names: str) -> None:
        """Run a statement that takes names instead of values (``:"parent"``), quoted.

        Behind a pooler it runs in a transaction, with the session's settings and `keeper` as its role: no other client's
        session keeps them, and it waits for no lock without end.

        Raises:
            LinkDown, LinkBusy: as `fetch`.
        """
        conn = await self.connection()
        try:
            if not self.is_pooled:
                await conn.execute(with_names(label, self.schema, **names))
                return
            async with conn.transaction():
                await conn.execute(as_local_statement({**self._settings, "lock_timeout": _POOLED_LOCK_TIMEOUT}))
                if self.keeper is not None:
                    await conn.execute(with_names("roles/become_here", self.schema, keeper=self.keeper))
                await conn.execute(with_names(label, self.schema, **names))
        except _BUSY as error:
            raise LinkBusy(str(error)) from error
        except _DOWN as error:
            await self.close()
            msg = f"{label}: {error}"
            raise LinkDown(msg) from error

    async def close(self) -> None:
        """Close the connection; the next statement opens a new one."""
        conn, self._conn, self._cursor = self._conn, None, None
        if conn is not None:
            await conn.close()
