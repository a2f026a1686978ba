"""Stores one job in the caller's transaction, through the contract's function."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

from samecommit.errors import NotInTransaction
from samecommit.job import Enqueued, JobOptions, NewJob
from samecommit.storage.connections import Steps, fetch, in_transaction
from samecommit.storage.query import statement
from samecommit.unique import conflict

R = TypeVar("R")


def enqueue(job: NewJob[R], schema: str, *, own_transaction: bool = False) -> Steps[Enqueued[R]]:
    """Store the job and return what became of it.

    Args:
        job: made by ``task.job(...)``.
        schema: where it is stored.
        own_transaction: a connection that commits by itself will do.

    Raises:
        NotInTransaction: the connection would commit by itself.
        UniqueConflict: its key is held by another job, and it asked to be rejected then.
    """
    options = job.options
    if not (own_transaction or options.own_transaction) and not (yield from in_transaction()):
        raise outside(options.kind)
    query = statement("job/enqueue", schema, frozenset((*options.values, "payload")))
    rows = yield from fetch(query, {**options.values, "payload": job.payload})
    refuse_duplicate(options, *rows[0])
    return Enqueued(*rows[0])


def refuse_duplicate(options: JobOptions, job_id: int, created: bool, _replaced: bool) -> None:
    """Raise `UniqueConflict` for an answer that the job asked not to get."""
    if options.rejects_duplicate and not created:
        values: dict[str, Any] = options.values
        raise conflict(values["unique_key"], values.get("unique_scope") or options.kind, job_id)


def outside(kind: str) -> NotInTransaction:
    """Return the error for a connection that commits each statement."""
    return NotInTransaction(
        f"task {kind!r} was enqueued outside a transaction, on a connection that commits each statement: the job could exist "
        "without your data. Open a transaction around both, use app.enqueue(...) in a script, or say own_transaction=True"
    )


def as_text(moment: datetime) -> str:
    """Write an aware datetime in UTC, so that it sorts as text and no session's settings change its meaning."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
