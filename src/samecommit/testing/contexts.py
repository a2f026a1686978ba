"""Real contexts over a run that keeps everything in memory: a task is called like a function, and asked what it told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg

from samecommit.context import AsyncContext, Context
from samecommit.errors import ConfigError
from samecommit.job import Job
from samecommit.payload import encode_plain

_RECORD_BYTES = 65_536  # as a worker's
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class FakeRun:
    """What a context of `context` works on. After the call it shows what the handler did with it.

    Attributes:
        recorded: all fields given to ``ctx.record``, merged.
        progressed: every value given to ``ctx.progress``.
        is_finished: whether the handler ended its job itself (``ctx.finish``, or a transaction that was not rolled back).
        result: what it was finished with.
    """

    def __init__(self, dsn: str | None = None, *, cancel_requested: bool = False) -> None:
        self.installation = "testing"
        self.cancel_requested = cancel_requested
        self.recorded: dict[str, Any] = {}
        self.progressed: list[Any] = []
        self.is_finished = False
        self.result: Any = None
        self._dsn = dsn

    def record(self, fields: dict[str, Any]) -> None:
        """Keep the fields, if they could be stored."""
        encode_plain(fields, max_bytes=_RECORD_BYTES)
        together = {**self.recorded, **fields}
        encode_plain(together, max_bytes=_RECORD_BYTES)
        self.recorded = together

    def progress(self, value: Any) -> None:
        """Keep the value, if it could be stored."""
        encode_plain(value, max_bytes=_RECORD_BYTES)
        self.progressed.append(value)

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """Open a real transaction on the database given to `context`."""
        with self._undoing(), psycopg.connect(self._place(), autocommit=True) as conn, conn.transaction():
            yield conn
            self.finish(conn, self.result)

    @asynccontextmanager
    async def transaction_async(self) -> AsyncGenerator[Any]:
        """Open a real transaction on the database given to `async_context`."""
        with self._undoing():
            async with (
                await psycopg.AsyncConnection.connect(self._place(), autocommit=True) as conn,
                conn.transaction(),
            ):
                yield conn
                self.finish(conn, self.result)

    @contextmanager
    def _undoing(self) -> Generator[None]:
        """Forget an end that does not commit."""
        before = self.is_finished, self.result
        try:
            yield
        except BaseException:
            self.is_finished, self.result = before
            raise

    def finish(self, conn: Any, result: Any) -> None:  # noqa: ARG002 - the signature of a run
        """Note that the handler ended its job."""
        self.is_finished, self.result = True, result

    async def finish_async(self, conn: Any, result: Any) -> None:
        """Note that the handler ended its job."""
        self.finish(conn, result)

    def _place(self) -> str:
        if self._dsn is None:
            msg = "this context has no database, so it cannot open a transaction: give context(dsn=...) one"
            raise ConfigError(msg)
        return self._dsn


def make_job(kind: str = "testing", *, attempt: int = 1, decision: Any = None, **fields: Any) -> Job:
    """Return a job as a handler would see it; every field can be given."""
    known: dict[str, Any] = {
        "id": 1, "pos": 1, "queue_id": 1, "priority": 0, "kind": kind, "claims": attempt, "attempts": attempt - 1,
        "max_attempts": 20, "claimed_at": _EPOCH, "created_at": _EPOCH, "run_at": _EPOCH, "crashes": 0, "payload_version": 1,
        "parent_id": None, "replay_of": None, "effect_key": None, "expires_at": None, "tags": None, "meta_json": None,
        "decision_json": None if decision is None else msgspec.json.encode(decision).decode(), "payload_json": "{}",
    }  # fmt: skip
    if unknown := fields.keys() - known.keys():
        msg = f"a job has no field {min(unknown)!r}: one of {', '.join(sorted(known))}"
        raise ConfigError(msg)
    return Job(**{**known, **fields})


def context(run: FakeRun | None = None, *, attempt: int = 1, decision: Any = None, **fields: Any) -> Context:
    """Return a context for a plain function.

    Args:
        run: what it works on, to look at afterwards; ``FakeRun(dsn)`` allows ``ctx.transaction()``.
        attempt: which attempt this is, from 1.
        decision: what the person who released the job decided.
        fields: of the job, as in ``context(id=7, effect_key="order:7")``.
    """
    return Context(make_job(attempt=attempt, decision=decision, **fields), run or FakeRun())


def async_context(run: FakeRun | None = None, *, attempt: int = 1, decision: Any = None, **fields: Any) -> AsyncContext:
    """Return a context for an ``async def`` function; arguments as for `context`."""
    return AsyncContext(make_job(attempt=attempt, decision=decision, **fields), run or FakeRun())
