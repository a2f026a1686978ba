"""``samecommit queues``: lists, makes, pauses and resumes queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from samecommit.cli.failure import Exit
from samecommit.cli.options import Manner, common, database, operator
from samecommit.cli.show import at_most, table, when
from samecommit.cli.values import Moment
from samecommit.storage.operate import Until

COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "queue": lambda row: row["name"],
    "state": lambda row: _state(row),
    "in line": lambda row: at_most(row["waiting"], 10_000),
    "workers": lambda row: str(row["workers"]),
    "history": lambda row: row["retention"],
    "note": lambda row: _note(row),
}


def _state(row: Mapping[str, Any]) -> str:
    if row["away"] is not None:
        return "waiting"
    return "paused" if row["is_paused"] else "open"


def _note(row: Mapping[str, Any]) -> str:
    if row["away"] is not None:
        return "this database is a copy: samecommit adopt"
    if not row["is_paused"]:
        return ""
    return f"{row['pause_reason'] or 'no reason given'}; ends {when(row['paused_until']) or 'when it is resumed'}"


@click.group(invoke_without_command=True)
@database
@common
def queues(manner: Manner, dsn: str | None, schema: str) -> None:
    """List queues, or make, pause and resume one."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    with operator(dsn, schema) as asked:
        rows = asked.queues()
    manner.say(rows, table(rows, COLUMNS))


@queues.command()
@click.argument("name")
@click.option(
    "--retention", type=click.Choice(["none", "short", "default", "long"]), help="How long its history is kept."
)
@click.option("--max-attempts", type=click.IntRange(1, 32_767), help="For jobs that say nothing themselves.")
@database
@common
def create(
    manner: Manner, name: str, retention: str | None, max_attempts: int | None, dsn: str | None, schema: str
) -> None:
    """Make a queue, or change what is given of one that is there."""
    from samecommit.definition import check_name

    check_name("queue", name)
    with operator(dsn, schema) as asked:
        queue_id = asked.create_queue(name, retention=retention, max_attempts=max_attempts)
    manner.say({"id": queue_id, "name": name}, f"queue {name!r} is there")


@queues.command()
@click.argument("name")
@click.option("--reason", metavar="TEXT", help="For whoever wonders.")
@click.option("--until", type=Moment(), help="When it ends by itself: 30min, 2h or a time.")
@database
@common
def pause(manner: Manner, name: str, reason: str | None, until: Until | None, dsn: str | None, schema: str) -> None:
    """Stop workers from claiming from a queue; what runs goes on."""
    with operator(dsn, schema) as asked:
        asked.pause(name, reason, until=until)
    manner.say({"name": name, "is_paused": True}, f"queue {name!r} is paused; what runs goes on")


@queues.command()
@click.argument("name")
@database
@common
def resume(manner: Manner, name: str, dsn: str | None, schema: str) -> None:
    """Let workers claim from a queue again."""
    with operator(dsn, schema) as asked:
        asked.resume(name)
    manner.say({"name": name, "is_paused": False}, f"queue {name!r} is open")


@queues.command()
@click.argument("name")
@database
@common
def why(manner: Manner, name: str, dsn: str | None, schema: str) -> int:
    """Say why nothing of a queue runs."""
    with operator(dsn, schema) as asked:
        reasons = asked.why_queue(name)
    manner.say(reasons, f"queue {name!r} is {reasons[0]['state']}", *(f"  {reason['sentence']}" for reason in reasons))
    return Exit.REFUSED if reasons[0]["code"] == "not_found" else Exit.OK
