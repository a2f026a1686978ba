"""``samecommit enqueue``: stores one job, in a transaction of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.failure import Refused
from samecommit.cli.options import Manner, common, database, of_app, resolve_dsn
from samecommit.cli.values import Json, Moment, arguments

if TYPE_CHECKING:
    from samecommit.app import App
    from samecommit.job import NewJob
    from samecommit.storage.operate import Until
    from samecommit.task import Task


@click.command()
@click.argument("kind")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=JSON", help="One argument; what is no JSON is a text.")
@click.option("--payload", type=Json(dict), help="All arguments as one object; @FILE and - read it.")
@click.option("--app", "target", metavar="MODULE:APP", envvar="SAMECOMMIT_APP", help="Check against its task.")
@click.option("--queue", metavar="NAME", help="The task's, else default.")
@click.option("--priority", type=click.IntRange(-100, 100), help="Higher first.")
@click.option("--at", "at", type=Moment(), help="When: 90s, 30min, 2h, 1d or a time.")
@click.option("--expires-at", type=Moment(), help="Not to be started after this time.")
@click.option("--max-attempts", type=int, metavar="N", help="The queue's when not given.")
@click.option("--tag", "tags", multiple=True, metavar="TEXT", help="May be repeated.")
@click.option("--effect-key", metavar="TEXT", help="What its effects are known by outside.")
@click.option("--unique", metavar="KEY", help="At most one live job with this key.")
@click.option("--unique-for", type=Moment(), metavar="SPAN", help="Keep that key so long, though the job ends: 12h.")
@database
@common
def enqueue(manner: Manner, kind: str, pairs: tuple[str, ...], payload: str | None, target: str | None,
            dsn: str | None, schema: str, **given: Any) -> None:  # fmt: skip
    """Store a job of that KIND, in a transaction of its own.

    With --app (or SAMECOMMIT_APP) the arguments are checked against the task, its queue, priority and attempts are used, and
    the job goes into the application's database and schema; without it the database takes what it is given.
    """
    from samecommit.app import App
    from samecommit.cli.locate import locate

    options = _options(given)
    text = arguments(pairs, payload)
    if target is None:
        address = resolve_dsn(dsn)
        job = _untyped(kind, text, options, schema)
    else:
        app = locate(target)
        address, schema = of_app(app, dsn, schema)
        job = _typed(app, target, kind, text, options)
    stored = App(address, schema=schema).enqueue(job)
    state = "enqueued" if stored.created else "there already"
    manner.say({"id": stored.id, "created": stored.created}, f"job {stored.id} ({kind}): {state}")


def _options(given: dict[str, Any]) -> dict[str, Any]:
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    at: Until | None = chosen.pop("at", None)
    if at is not None:
        chosen |= {"run_at": at.at} if at.at is not None else {"delay": at.seconds}
    if "unique_for" in chosen:
        if chosen["unique_for"].seconds is None:
            raise click.UsageError("--unique-for takes a span, as in 12h")
        chosen["unique_for"] = chosen["unique_for"].seconds
    if "expires_at" in chosen:
        if chosen["expires_at"].at is None:
            raise click.UsageError("--expires-at takes a time, as in 2030-01-31T09:00")
        chosen["expires_at"] = chosen["expires_at"].at
    return chosen


def _typed(app: App, target: str, kind: str, payload: str, options: dict[str, Any]) -> NewJob[Any]:
    """Make the job as the application's own code would."""
    from samecommit.errors import PayloadMismatch
    from samecommit.task import Task

    definition = app.definitions.get(kind)
    if definition is None:
        raise Refused(f"{target!r} has no task {kind!r}: it has {', '.join(sorted(app.definitions)) or 'none'}")
    try:
        decoded = definition.codec.decode(payload)
    except PayloadMismatch as error:
        where = str(error).partition(" at ")[2] or str(error)
        raise click.UsageError(f"these arguments do not fit task {kind!r}, at {where}") from error
    task: Task[..., Any] = Task(definition, lambda: app.schema)
    return task.using(**options).job(**decoded)


def _untyped(kind: str, payload: str, options: dict[str, Any], schema: str) -> NewJob[Any]:
    """Make the job from what is given: its options are checked, its arguments are not."""
    from samecommit.definition import check_name, define
    from samecommit.job import NewJob
    from samecommit.task import Task

    def unknown() -> None: ...

    task: Task[..., Any] = Task(define(unknown, name=check_name("task", kind)), lambda: schema)
    return NewJob(task.using(**options).job().options, payload)
