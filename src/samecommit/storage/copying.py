"""Streams jobs in by COPY, on a connection whose role may write the tables.

What jobs of one ``task.using(...)`` share is written once; a row is then four numbers, that text and the payload. Ids and
places in line are taken from the sequences before, so that the ids are known without reading anything back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from samecommit.errors import UnknownQueue
from samecommit.job import JobOptions, NewJob
from samecommit.storage.connections import Steps, copy, fetch
from samecommit.storage.enqueue import as_text
from samecommit.storage.query import statement

LARGE_CHARACTERS = 2000
_MOST_SHARED = 5000
_NULL = "\\N"
_COPY_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_ARRAY_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


class Queue(NamedTuple):
    """What jobs take from their queue."""

    id: int
    retention: int
    max_attempts: int


class Shared(NamedTuple):
    """What the rows of one ``task.using(...)`` have in common."""

    columns: str
    queue_id: int
    run_at: str | None
    delay_seconds: float


class Copier:
    """One call's way through COPY.

    Args:
        schema: where the jobs are stored.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._queues: dict[str, Queue] = {}
        self._shared: dict[JobOptions, Shared] = {}
        self._rung: set[int] = set()

    def copy(self, jobs: Sequence[NewJob[Any]]) -> Steps[list[int]]:
        """Store the jobs, none of which has a unique key, and return their ids in order.

        Raises:
            UnknownQueue: names one.
        """
        yield from self._learn(jobs)
        values = {"jobs": len(jobs), "places": len(jobs)}
        ((asked_at, ids, places),) = yield from fetch(statement("job/copy_places", self._schema), values)
        rows, bodies = self._rows(jobs, asked_at, ids, places)
        yield from copy(statement("job/copy", self._schema), "".join(rows))
        if bodies:
            yield from copy(statement("job/copy_bodies", self._schema), "".join(bodies))
        return list(ids)

    def ring(self) -> Steps[None]:
        """Ring for every queue that has got something due."""
        if self._rung:
            yield from fetch(statement("job/ring", self._schema), {"queue_ids": sorted(self._rung)})

    def _learn(self, jobs: Iterable[NewJob[Any]]) -> Steps[None]:
        shared = self._shared
        if len(shared) > _MOST_SHARED:
            shared.clear()
        new = {job.options for job in jobs if job.options not in shared}
        missing = sorted({options.queue for options in new} - self._queues.keys())
        if missing:
            rows = yield from fetch(statement("job/copy_queues", self._schema), {"names": missing})
            self._queues.update((name, Queue(*rest)) for name, *rest in rows)
            if unknown := [name for name in missing if name not in self._queues]:
                msg = f"unknown queue {unknown[0]!r}: make it with samecommit queues create, or start a worker"
                raise UnknownQueue(msg)
        shared.update((options, _share(options.values, self._queues[options.queue])) for options in new)

    def _rows(
        self, jobs: Sequence[NewJob[Any]], asked_at: str, ids: Sequence[int], places: Sequence[int]
    ) -> tuple[list[str], list[str]]:
        shared, rung = self._shared, self._rung
        rows: list[str] = []
        bodies: list[str] = []
        for job, job_id, place in zip(jobs, ids, places, strict=True):
            columns, queue_id, run_at, delay_seconds = shared[job.options]
            payload = job.payload.replace("\\", "\\\\")
            if len(payload) > LARGE_CHARACTERS:
                bodies.append(f"{job_id}\t{asked_at}\t{payload}\n")
                payload = _NULL
            if run_at is None and not delay_seconds:
                rows.append(f"{job_id}\t{place}\t{asked_at}\t{asked_at}\t{columns}\t{payload}\n")
                rung.add(queue_id)
                continue
            due_at = _due_at(run_at or asked_at, delay_seconds)
            is_due = due_at <= asked_at
            rows.append(f"{job_id}\t{place if is_due else _NULL}\t{due_at}\t{asked_at}\t{columns}\t{payload}\n")
            if is_due:
                rung.add(queue_id)
        return rows, bodies


def _due_at(start: str, delay_seconds: float) -> str:
    if not delay_seconds:
        return start
    return as_text(datetime.fromisoformat(start) + timedelta(seconds=delay_seconds))


def _share(values: dict[str, Any], queue: Queue) -> Shared:
    tags = values.get("tags")
    columns = (
        values.get("expires_at"),
        values.get("parent_id"),
        queue.id,
        values.get("priority", 0),
        values.get("max_attempts", queue.max_attempts),
        queue.retention,
        values.get("payload_version", 1),
        values["kind"],
        None if tags is None else _array(tags),
        values.get("effect_key"),
        values.get("meta"),
    )
    return Shared("\t".join(map(_column, columns)), queue.id, values.get("run_at"), values.get("delay_seconds", 0.0))


def _column(value: Any) -> str:
    return _NULL if value is None else str(value).translate(_COPY_ESCAPES)


def _array(texts: Iterable[str]) -> str:
    quoted = (f'"{text.translate(_ARRAY_ESCAPES)}"' for text in texts)
    return "{" + ",".join(quoted) + "}"
