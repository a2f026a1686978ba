"""One run of one job: what its context works on, and what the executor must know of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import Any, Literal, Protocol

from samecommit.definition import TaskDefinition
from samecommit.errors import LeaseLost, NotInTransaction
from samecommit.job import Job
from samecommit.payload import encode_plain
from samecommit.storage.connections import Steps, door_for, fetch, in_transaction, perform
from samecommit.storage.link import Row
from samecommit.storage.query import statement
from samecommit.worker.verdict import encode_result

StopReason = Literal["timeout", "cancel", "lost", "shutdown"]
_RECORD_BYTES = 65_536


class Host(Protocol):
    """What an attempt needs of its worker."""

    installation: str
    schema: str
    lease_id: int

    def mark_dirty(self, attempt: Attempt) -> None: ...
    def sync_connection(self) -> Any: ...
    def async_connection(self) -> Any: ...


class Attempt:
    """A claimed job with its state in this worker. Implements `samecommit.context.Run`.

    Args:
        row: the job in the column order of ``claim/claim.sql``.
    """

    future: asyncio.Future[Any] | None = None
    deadline = 0.0
    is_started = is_abandoned = is_ended_by_handler = False
    stop_reason: StopReason | None = None
    cancel_reason: str | None = None
    stopped = 0.0
    record_fields: dict[str, Any] | None = None
    record_json: str | None = None
    progress_json: str | None = None

    def __init__(self, row: Row, claim_id: int, definition: TaskDefinition, host: Host) -> None:
        # a hundred thousand of these a second: what most runs never touch stays in the class
        self.row, self.claim_id, self.definition, self.host = row, claim_id, definition, host
        self.id: int = row[0]

    def __repr__(self) -> str:
        return f"<Attempt {self.job.kind} {self.id} claim {self.claim_id} {self.stop_reason or 'running'}>"

    def wins(self, what: Literal["start", "end"], who: Literal["loop", "thread"]) -> bool:
        """Whether ``who`` came first: the thread that starts or ends the handler, or the loop that goes on without it."""
        return bool(self.__dict__.setdefault(f"_{what}", who) == who)

    @cached_property
    def job(self) -> Job:
        """The job as its handler sees it."""
        return Job(*self.row)

    @property
    def installation(self) -> str:
        """Which installation the job belongs to."""
        return self.host.installation

    @property
    def cancel_requested(self) -> bool:
        """Whether the handler should stop."""
        return self.stop_reason is not None

    def record(self, fields: dict[str, Any]) -> None:
        """Check and keep fields, beside the earlier ones, until the next write.

        They are encoded here, whole: what cannot be stored is the handler's error, and never one of the write of its end.
        """
        encode_plain(fields, max_bytes=_RECORD_BYTES)  # an error of one call names what that call gave
        together = {**(self.record_fields or {}), **fields}
        self.record_json = encode_plain(together, max_bytes=_RECORD_BYTES)
        self.record_fields = together
        self.host.mark_dirty(self)

    def progress(self, value: Any) -> None:
        """Check and keep the last progress until the next write."""
        self.progress_json = encode_plain(value, max_bytes=_RECORD_BYTES)
        self.host.mark_dirty(self)

    def _finish_values(self, result: Any) -> dict[str, Any]:
        if self.stop_reason == "lost" or self.is_abandoned:
            raise self._lost()
        return {
            "ids": [self.id],
            "claim_ids": [self.claim_id],
            "states": ["done"],
            "results": [encode_result(self.definition, result)],
            "errors": [None],
            "records": [self.record_json],
            "lease_id": self.host.lease_id,
        }

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"job {self.id} belongs to another run now, or has been ended by an earlier transaction: this one must not commit"
        )

    def finish(self, conn: Any, result: Any) -> None:
        """End the job on the caller's plain connection."""
        if door_for(conn)[1]:
            msg = "an async connection was given to a plain context: use an async def task with AsyncContext"
            raise TypeError(msg)
        perform(conn, self._finish(self._finish_values(result)))

    async def finish_async(self, conn: Any, result: Any) -> None:
        """End the job on the caller's connection, plain or asynchronous."""
        finishing = perform(conn, self._finish(self._finish_values(result)))
        if finishing is not None:
            await finishing

    def _finish(self, values: dict[str, Any]) -> Steps[None]:
        if not (yield from in_transaction()):
            msg = (
                f"ctx.finish of job {self.id} was called outside a transaction, on a connection that commits each "
                "statement: the job would end apart from your data. Open a transaction around both"
            )
            raise NotInTransaction(msg)
        if not (yield from fetch(statement("job/finish", self.host.schema), values)):
            raise self._lost()
        self.is_ended_by_handler = True

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """A plain connection whose transaction ends the job."""
        with self._ending() as ending, self.host.sync_connection() as conn, conn.transaction():
            yield conn
            if not self.is_ended_by_handler or perform(conn, self._is_ours()):
                self.finish(conn, None)
            ending.is_through = True

    @asynccontextmanager
    async def transaction_async(self) -> AsyncGenerator[Any]:
        """An async connection whose transaction ends the job."""
        with self._ending() as ending:
            async with self.host.async_connection() as conn, conn.transaction():
                yield conn
                if not self.is_ended_by_handler or await perform(conn, self._is_ours()):
                    await self.finish_async(conn, None)
                ending.is_through = True

    @contextmanager
    def _ending(self) -> Generator[_Ending]:
        """Note whether the block's own transaction ends the job: one that is undone, or never commits, leaves nothing.

        Each such transaction must find the job and delete it, whatever an earlier one of this run did: an answer to a commit
        may be lost, and what is written again then must not be.
        """
        ending, before = _Ending(), self.is_ended_by_handler
        self.is_ended_by_handler = False
        try:
            yield ending
        except BaseException:
            ending.is_through = False
            raise
        finally:
            self.is_ended_by_handler = ending.is_through or before

    def _is_ours(self) -> Steps[bool]:
        """Whether the job is still there as this run's: a savepoint may have undone its end."""
        pair = {"ids": [self.id], "claim_ids": [self.claim_id]}
        return bool((yield from fetch(statement("claim/owned", self.host.schema), pair)))


class _Ending:
    """What came of a transaction that ends the job."""

    is_through = False
