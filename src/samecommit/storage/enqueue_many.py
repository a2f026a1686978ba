"""Stores any number of jobs in the caller's transaction: all of them or none, streamed, in memory of one chunk.

::

    jobs --chunk--> checked --+--> COPY, with ids and places taken from the sequences before   psycopg, a role that may INSERT
                              +--> the contract's enqueue_many(jsonb)                          everything else, unique keys

A chunk is pulled and checked before its SQL. The whole call is one savepoint: when a job of it is refused, nothing of the
batch stays and the caller's transaction goes on. COPY is worth its five round trips from a full chunk on; it takes twice as
many jobs per second as the function. A job with a unique key goes through the function, which takes keys in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from samecommit.errors import ConfigError, PayloadError
from samecommit.job import EnqueuedMany, JobOptions, NewJob
from samecommit.storage.connections import Steps, all_or_nothing, can_copy, fetch, in_transaction, wait
from samecommit.storage.copying import Copier
from samecommit.storage.enqueue import outside, refuse_duplicate
from samecommit.storage.query import statement

R = TypeVar("R")
Progress = Callable[[int], None]
_CHUNK_JOBS = 5000
_CHUNK_CHARACTERS = 8_000_000


def enqueue_many(
    jobs: Any, schema: str, *, progress: Progress | None = None, own_transaction: bool = False
) -> Steps[EnqueuedMany[Any]]:
    """Store the jobs and return what became of each.

    Args:
        jobs: an iterable, or an asynchronous one on an asynchronous connection.
        schema: where they are stored.
        progress: called after each chunk with how many are stored so far.
        own_transaction: a connection that commits by itself will do.

    Raises:
        PayloadError: from the iterable; ``index`` says at which job.
        NotInTransaction: the connection would commit by itself.
        UniqueConflict: a key is held, and its job asked to be rejected then.
    """
    source = _Source(jobs)
    chunk = yield from source.next_chunk()
    inside = yield from in_transaction()
    if not chunk:
        return EnqueuedMany()
    if not inside and not own_transaction:
        raise outside(chunk[0].options.kind)
    return (yield from all_or_nothing(_store_chunks(chunk, source, schema, progress), inside=inside))


class _Source:
    """The jobs to come, in chunks."""

    def __init__(self, jobs: Any) -> None:
        self._is_async = hasattr(jobs, "__aiter__")
        self._jobs: Any = aiter(jobs) if self._is_async else iter(jobs)
        self._taken = 0

    def next_chunk(self) -> Steps[list[NewJob[Any]]]:
        chunk: list[NewJob[Any]] = []
        try:
            if self._is_async:
                yield from wait(_fill_async(chunk, self._jobs))
            else:
                _fill(chunk, self._jobs)
        except PayloadError as error:
            index = self._taken + len(chunk)
            msg = f"job {index} of the batch: {error}"
            raise PayloadError(msg, error.path, index) from error
        self._taken += len(chunk)
        return chunk


def _fill(chunk: list[NewJob[Any]], jobs: Iterator[Any]) -> None:
    characters = 0
    for job in jobs:
        _check(job, chunk)
        chunk.append(job)
        characters += len(job.payload)
        if len(chunk) >= _CHUNK_JOBS or characters >= _CHUNK_CHARACTERS:
            return


async def _fill_async(chunk: list[NewJob[Any]], jobs: AsyncIterator[Any]) -> None:
    characters = 0
    async for job in jobs:
        _check(job, chunk)
        chunk.append(job)
        characters += len(job.payload)
        if len(chunk) >= _CHUNK_JOBS or characters >= _CHUNK_CHARACTERS:
            return


def _check(job: Any, chunk: list[NewJob[Any]]) -> None:
    if not isinstance(job, NewJob):
        msg = f"enqueue_many got {job!r} after {len(chunk)} jobs of this chunk: give what task.job(...) returns"
        raise PayloadError(msg)
    if job.options.own_transaction:
        msg = f"task {job.options.kind!r}: own_transaction belongs to the call, as in enqueue_many(conn, jobs, own_transaction=True)"
        raise ConfigError(msg)


def _store_chunks(
    chunk: list[NewJob[Any]], source: _Source, schema: str, progress: Progress | None
) -> Steps[EnqueuedMany[Any]]:
    stored: EnqueuedMany[Any] = EnqueuedMany()
    texts = _Texts()
    copier: Copier | None = None
    if (
        len(chunk) >= _CHUNK_JOBS
        and (yield from can_copy())
        and (yield from fetch(statement("job/may_copy", schema), {}))[0][0]
    ):
        copier = Copier(schema)
    while chunk:
        if copier is None or any("unique_key" in job.options.values for job in chunk):
            yield from _call(chunk, texts, schema, stored)
        else:
            stored.add_new((yield from copier.copy(chunk)))
        if progress is not None:
            progress(len(stored))
        chunk = yield from source.next_chunk()
    if copier is not None:
        yield from copier.ring()
    return stored


def _call(chunk: list[NewJob[Any]], texts: _Texts, schema: str, stored: EnqueuedMany[Any]) -> Steps[None]:
    rows = yield from fetch(statement("job/enqueue_many", schema), {"jobs": texts.of(chunk)})
    for job, row in zip(chunk, rows, strict=True):
        refuse_duplicate(job.options, *row)
        stored.add(*row)


class _Texts:
    """Writes jobs as the contract's JSON; what jobs share is written once."""

    def __init__(self) -> None:
        self._heads: dict[JobOptions, str] = {}

    def of(self, jobs: Iterable[NewJob[Any]]) -> str:
        heads = self._heads
        if len(heads) > _CHUNK_JOBS:
            heads.clear()
        rows: list[str] = []
        for job in jobs:
            head = heads.get(job.options)
            if head is None:
                head = heads[job.options] = _head(job.options.values)
            rows.append(f"{head}{job.payload}}}")
        return f"[{','.join(rows)}]"


def _head(values: dict[str, Any]) -> str:
    given = dict(values)
    if "meta" in given:
        given["meta"] = msgspec.Raw(given["meta"].encode())
    for name, seconds in (("delay", "delay_seconds"), ("unique_for", "unique_seconds")):
        if seconds in given:
            given[name] = f"{given.pop(seconds):.6f} seconds"
    return msgspec.json.encode(given).decode()[:-1] + ',"payload":'
