"""What a script does on a connection of its own: store one job, wait for a result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import psycopg

from samecommit.errors import CommitUnknown, JobError, UnknownJob
from samecommit.job import Enqueued, NewJob
from samecommit.storage.connections import Steps, fetch, perform
from samecommit.storage.enqueue import enqueue
from samecommit.storage.query import statement
from samecommit.storage.session import as_writer

R = TypeVar("R")
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.005, 0.5, 1.5
_UNKNOWN = (
    "the connection was lost before the database answered: the job may be stored or not. A unique key (using(unique=...)) "
    "makes it safe to enqueue it again"
)


class End(NamedTuple):
    """How a job ended well: its kind, and its result as JSON."""

    kind: str
    result: str | None


def store(dsn: str, schema: str, job: NewJob[R]) -> Enqueued[R]:
    """Store the job and commit.

    Raises:
        CommitUnknown: the connection was lost before the answer came.
    """
    with psycopg.connect(dsn, autocommit=True, client_encoding="UTF8", **as_writer(dsn)) as conn:
        try:
            stored: Enqueued[R] = perform(conn, enqueue(job, schema, own_transaction=True))
        except psycopg.OperationalError as error:
            raise (CommitUnknown(_UNKNOWN) if conn.broken else error) from error
        return stored


async def store_async(dsn: str, schema: str, job: NewJob[R]) -> Enqueued[R]:
    """Store the job and commit; errors as `store`."""
    async with await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, client_encoding="UTF8", **as_writer(dsn)
    ) as conn:
        try:
            stored: Enqueued[R] = await perform(conn, enqueue(job, schema, own_transaction=True))
        except psycopg.OperationalError as error:
            raise (CommitUnknown(_UNKNOWN) if conn.broken else error) from error
        return stored


def wait_for(dsn: str, schema: str, job_id: int, timeout: float) -> End:
    """Wait until the job has ended.

    Raises:
        JobError: it failed or was cancelled.
        UnknownJob: nothing of that id is stored.
        TimeoutError: it has not ended in time.
    """
    with psycopg.connect(dsn, autocommit=True, client_encoding="UTF8", prepare_threshold=None) as conn:
        for pause in _pauses(timeout):
            end: End | None = perform(conn, _look(job_id, schema))
            if end is not None:
                return end
            time.sleep(pause)
    raise _too_late(job_id, timeout)


async def wait_for_async(dsn: str, schema: str, job_id: int, timeout: float) -> End:
    """Wait until the job has ended; errors as `wait_for`."""
    async with await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, client_encoding="UTF8", prepare_threshold=None
    ) as conn:
        for pause in _pauses(timeout):
            end: End | None = await perform(conn, _look(job_id, schema))
            if end is not None:
                return end
            await asyncio.sleep(pause)
    raise _too_late(job_id, timeout)


def _pauses(timeout: float) -> Iterator[float]:
    """Yield how long to sleep between two looks, longer each time; the last look is at the end of the time."""
    pause, deadline = _FIRST_PAUSE, time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)
    yield 0.0


def _look(job_id: int, schema: str) -> Steps[End | None]:
    rows = yield from fetch(statement("job/result", schema), {"id": job_id})
    if not rows:
        msg = f"no job {job_id}: its transaction has not committed, its queue keeps no history, or its day is over"
        raise UnknownJob(msg)
    kind, state, reason, result = rows[0]
    if state in ("failed", "cancelled"):
        msg = f"job {job_id} ({kind}) {'was cancelled' if state == 'cancelled' else 'failed'}: {reason or 'no reason given'}"
        raise JobError(msg, job_id=job_id, state=state, reason=reason)
    return End(kind, result) if state == "done" else None


def _too_late(job_id: int, timeout: float) -> TimeoutError:
    return TimeoutError(f"job {job_id} has not ended within {timeout:g} s: why({job_id}) in SQL says what it waits for")
