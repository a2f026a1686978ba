"""What a handler is given: its job, a way to record and to end in its own transaction. Two twins, plain and async.

The work behind a context is done by a `Run` (the worker's, or the one of ``samecommit.testing``).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from samecommit.job import Job

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Run(Protocol):
    """What a context needs of whatever runs the job."""

    @property
    def installation(self) -> str: ...
    @property
    def cancel_requested(self) -> bool: ...
    def record(self, fields: dict[str, Any]) -> None: ...
    def progress(self, value: Any) -> None: ...
    def transaction(self) -> AbstractContextManager[Any]: ...
    def transaction_async(self) -> AbstractAsyncContextManager[Any]: ...
    def finish(self, conn: Any, result: Any) -> None: ...
    async def finish_async(self, conn: Any, result: Any) -> None: ...


class BaseContext:
    """What both twins have."""

    __slots__ = ("_run", "job")

    def __init__(self, job: Job, run: Run) -> None:
        self.job = job
        self._run = run

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.job.kind} {self.job.id} attempt {self.attempt} of {self.job.max_attempts}>"
        )

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1; attempts that spent nothing (snooze, hold, shutdown) are not counted."""
        return self.job.attempts + 1

    @property
    def effect_key(self) -> str:
        """What to send as an idempotency key: the same for every attempt of this job, and for no other job.

        The moment is part of it, because a database that was set back (restored, or failed over without all that was
        committed) gives the ids behind that point a second time.
        """
        created = (self.job.created_at - _EPOCH) // timedelta(microseconds=1)
        return self.job.effect_key or f"{self._run.installation}:{self.job.id}:{created}"

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked for this job to stop, or this run lost its lease: plain functions look at it themselves.

        In a child process (``executor="process"``) it stays false: that is ended instead.
        """
        return self._run.cancel_requested

    def record(self, **fields: Any) -> None:
        """Keep facts with this attempt (model, prompt version, tokens, cost, outcome), merged over earlier ones.

        Written within a second or with the attempt's end; safe to repeat.

        Raises:
            PayloadError: a value that JSON or the database cannot hold.
        """
        self._run.record(fields)

    def progress(self, value: Any) -> None:
        """Say how far this attempt is (a number, a text, a small object); only the last one is kept."""
        self._run.progress(value)


class Context(BaseContext):
    """The context of a plain function, which runs on a thread."""

    __slots__ = ()

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a psycopg connection in a transaction that also ends the job, as its last statement.

        Everything written on it and the job's end commit together. If another worker owns the job by then, nothing
        commits and `LeaseLost` is raised.
        """
        return self._run.transaction()

    def finish(self, conn: Any, result: Any = None) -> None:
        """End the job as done in the caller's transaction on any supported connection: make it the last statement.

        Raises:
            LeaseLost: somebody else owns the job; roll back.
            NotInTransaction: the connection commits each statement, so that the end could not wait for your data.
        """
        self._run.finish(conn, result)


class AsyncContext(BaseContext):
    """The context of an ``async def`` function, which runs on the event loop."""

    __slots__ = ()

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open an async psycopg connection in a transaction that also ends the job, as its last statement.

        Everything written on it and the job's end commit together. If another worker owns the job by then, nothing
        commits and `LeaseLost` is raised.
        """
        return self._run.transaction_async()

    async def finish(self, conn: Any, result: Any = None) -> None:
        """End the job as done in the caller's transaction on any supported connection: make it the last statement.

        Raises:
            LeaseLost: somebody else owns the job; roll back.
            NotInTransaction: the connection commits each statement, so that the end could not wait for your data.
        """
        await self._run.finish_async(conn, result)
