"""What was enqueued, seen from inside the transaction that enqueued it."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import tuple_row

from samecommit.storage.query import statement
from samecommit.task import Task


def enqueued(conn: psycopg.Connection[Any], task: Task[..., Any]) -> list[dict[str, Any]]:
    """Return the arguments of this task's live jobs, oldest first, as its handler would get them.

    Args:
        conn: a plain psycopg connection; jobs of its open transaction are seen.
        task: the task.
    """
    query = statement("testing/enqueued", task.schema)
    cursor = psycopg.RawCursor(conn, row_factory=tuple_row)  # whatever rows the test's own statements give
    rows = cursor.execute(query.text, query.bind({"kinds": list(task.definition.kinds)})).fetchall()
    return [task.definition.codec.decode(row[0]) for row in rows]


def assert_enqueued(
    conn: psycopg.Connection[Any], task: Task[..., Any], *, count: int | None = None, **arguments: Any
) -> None:
    """Fail unless jobs of this task with these arguments wait; others may wait beside them.

    Args:
        conn: a plain psycopg connection; jobs of its open transaction are seen.
        task: the task.
        count: how many exactly; None is at least one.
        arguments: what they must have; arguments not named may be anything.

    Raises:
        AssertionError: says what was enqueued instead.
    """
    found = enqueued(conn, task)
    matching = [job for job in found if all(name in job and job[name] == value for name, value in arguments.items())]
    if (count is None and matching) or len(matching) == count:
        return
    wanted = f"{'at least 1' if count is None else count} job(s) of {task.definition.name!r} with {arguments!r}"
    shown = "\n".join(f"  {job!r}" for job in found[-20:]) or "  nothing"
    msg = f"expected {wanted}, found {len(matching)}; enqueued for that task:\n{shown}"
    raise AssertionError(msg)


def round_trip(task: Task[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments as the handler would get them: checked, encoded and decoded, without a database.

    Raises:
        PayloadError: an argument cannot be stored.
    """
    return task.definition.codec.decode(task.definition.codec.encode(args, kwargs))
