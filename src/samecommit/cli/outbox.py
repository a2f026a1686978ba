"""``samecommit outbox``: how far each destination is, why an event has not arrived, and what a person decides."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.failure import Exit, Refused
from samecommit.cli.options import Manner, common, database, of_app
from samecommit.cli.outbox_asking import LIMIT, Columns, Row, asking, numbers_of
from samecommit.cli.outbox_reconcile import reconcile
from samecommit.cli.outbox_replay import replay, replays
from samecommit.cli.show import at_most, span, table, when
from samecommit.cli.values import Ids, Moment, flat
from samecommit.storage.operate import Until

if TYPE_CHECKING:
    from samecommit.storage.operate_outbox import OutboxOperator, Verdict

PARKED_STATES = ("due", "waiting", "dead", "decision", "settled")


@click.group()
@database
@common
def outbox(_manner: Manner, dsn: str | None, schema: str) -> None:
    """Look after the outbox: where events go, and what has not arrived."""


outbox.add_command(replay)
outbox.add_command(replays)
outbox.add_command(reconcile)


# ---------------------------------------------------------------------------------------------------------------- look


def _name(row: Row) -> str:
    return row["destination"] if row["shards"] == 1 else f"{row['destination']}/{row['shard']}"


def _state(row: Row) -> str:
    return f"{row['state']} until {row['resume_at']:%H:%M:%S}" if row["resume_at"] else str(row["state"])


def _waiting(row: Row) -> str:
    return f"~{row['waiting']}" if row["is_estimate"] else str(row["waiting"])


COLUMNS: Columns = {
    "destination": _name,
    "kind": lambda row: f"{row['mode']} {row['sink'] or ''}".strip(),
    "order": lambda row: row["ordering"] or "",
    "window": lambda row: str(row["window_n"]),
    "state": _state,
    "waiting": _waiting,
    "oldest": lambda row: span(row["waiting_seconds"]) if row["waiting"] else "",
    "aside": lambda row: at_most(row["parked"], 10_000) if row["parked"] else "",
    "doubtful": lambda row: at_most(row["doubtful"], 10_000) if row["doubtful"] else "",
    "replays": lambda row: str(row["replays"]) if row["replays"] else "",
    "last error": lambda row: row["pause_reason"] or row["last_error"] or "",
}


@outbox.command()
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End with status 1 when the oldest event waits longer anywhere, or a destination is halted or has no relay.",
)
@database
@common
def status(manner: Manner, max_seconds: float | None, dsn: str | None, schema: str) -> int:
    """List where events go, how far each destination is, and what is wrong.

    WAITING counts events of all types that a destination has not passed, so it is the most that it can still get; with ~ it
    is estimated from their numbers. OLDEST is for how long the first of them could have been delivered. With
    --max-seconds the status is for an alert; a paused destination is on purpose and counts only by its age.
    """
    with asking(dsn, schema) as asked:
        rows = asked.status()
    late = [_name(row) for row in rows if max_seconds is not None and _is_late(row, max_seconds)]
    lines: list[Any] = [
        table(rows, COLUMNS) if rows else "no destination: a relay or a worker adds those of its application"
    ]
    if late:
        lines.append(f"late, halted or without a relay: {', '.join(late)}")
    manner.say(rows, *lines, late=late)
    return Exit.FAILED if late else Exit.OK


def _is_late(row: Row, max_seconds: float) -> bool:
    return row["waiting_seconds"] > max_seconds or row["state"] in ("halted", "no relay")


@outbox.command()
@click.argument("destination")
@click.argument("event", required=False)
@database
@common
def why(manner: Manner, destination: str, event: str | None, dsn: str | None, schema: str) -> int:
    """Say why a destination gets nothing, or what became of one EVENT there.

    EVENT is its number in the log or its id; an id is looked for from the newest event back, which takes a while in a long
    log.
    """
    with asking(dsn, schema) as asked:
        number = None if event is None else numbers_of(asked, [event])[0]
        reasons = asked.why(destination, number)
    subject = f"destination {destination!r}" if number is None else f"event {number} is, for {destination!r},"
    said = f"{subject} {'is ' if number is None else ''}{reasons[0]['state']}"
    manner.say(reasons, said, *(f"  {reason['sentence']}" for reason in reasons), number=number)
    return Exit.REFUSED if reasons[0]["code"] in ("not_found", "not_in_log") else Exit.OK


PARKED: Columns = {
    "destination": lambda row: row["destination"],
    "event": lambda row: str(row["number"]),
    "key": lambda row: row["key"] or "",
    "state": lambda row: row["state"],
    "attempts": lambda row: str(row["attempts"]),
    "since": lambda row: when(row["first_at"]),
    "next try": lambda row: when(row["due_at"]) if row["state"] == "due" else "",
    "error": lambda row: row["last_error"] or "",
}


@outbox.command()
@click.argument("destination", required=False)
@click.option("--state", type=click.Choice(PARKED_STATES), help="In this state only.")
@click.option("--ids", "only_ids", is_flag=True, help="Print the numbers alone, as resolve takes them.")
@LIMIT
@database
@common
def parked(
    manner: Manner,
    destination: str | None,
    state: str | None,
    limit: int,
    dsn: str | None,
    schema: str,
    *,
    only_ids: bool,
) -> None:
    """List the events that were put aside, of streams: refused, in doubt, or waiting behind one of their key."""
    with asking(dsn, schema) as asked:
        rows = asked.parked(destination, state=state, limit=limit)
        makes_jobs = destination is not None and not rows and asked.mode(destination) == "jobs"
    if only_ids and not manner.json:
        click.echo("".join(f"{row['number']}\n" for row in rows), nl=False)
        return
    aside = f": {destination!r} makes jobs, see samecommit jobs --kind deliver:{destination}" if makes_jobs else ""
    manner.say(rows, table(rows, PARKED) if rows else f"nothing is put aside{aside}")


DOUBTS: Columns = {
    "destination": lambda row: row["destination"],
    "id": lambda row: str(row["id"]),
    "of": lambda row: row["what"],
    "key": lambda row: row["key"] or "",
    "target": lambda row: row["target"],
    "since": lambda row: when(row["since_at"]),
    "attempts": lambda row: str(row["attempts"]),
    "error": lambda row: row["last_error"] or "",
}


@outbox.command()
@click.argument("destination", required=False)
@LIMIT
@database
@common
def doubts(manner: Manner, destination: str | None, limit: int, dsn: str | None, schema: str) -> None:
    """List what was sent, may have arrived or not, and waits for a person to look; resolve takes its ID."""
    with asking(dsn, schema) as asked:
        rows = asked.doubts(destination, limit=limit)
    manner.say(rows, table(rows, DOUBTS) if rows else "nothing is in doubt")


# --------------------------------------------------------------------------------------------------------------- decide


@outbox.command()
@click.argument("destination")
@click.argument("ids", metavar="ID...", type=Ids(), nargs=-1, required=True)
@click.option("--delivered", "verdict", flag_value="delivered", help="It has arrived: go on behind it.")
@click.option("--send-again", "verdict", flag_value="resend", help="It has not arrived, or may arrive twice: send it.")
@click.option("--drop", "verdict", flag_value="dropped", help="It shall not arrive: go on behind it.")
@click.option("--reference", metavar="TEXT", help="What the destination calls it; kept with a delivery's job.")
@database
@common
def resolve(
    manner: Manner, destination: str, ids: tuple[tuple[int, ...], ...], verdict: Verdict | None, reference: str | None,
    dsn: str | None, schema: str,
) -> int:  # fmt: skip
    """Decide about events that were put aside, or about held deliveries. Their keys go on by themselves.

    ID is an event's number, as parked lists it; for a job destination the job's id, as doubts lists it.
    """
    if verdict is None:
        raise click.UsageError("what is decided is missing: give --delivered, --send-again or --drop")
    with asking(dsn, schema) as asked:
        outcomes = [(item, asked.resolve(destination, item, verdict, reference)) for item in flat(ids)]
    done = sum(outcome == "resolved" for _, outcome in outcomes)
    lines = [f"{item}: {_resolved(item, outcome)}" for item, outcome in outcomes]
    manner.say(
        [{"id": item, "outcome": outcome} for item, outcome in outcomes],
        *lines,
        done=done,
        refused=len(outcomes) - done,
    )
    return Exit.OK if done == len(outcomes) else Exit.REFUSED


def _resolved(item: int, outcome: str) -> str:
    match outcome:
        case "resolved":
            return outcome
        case "not found":
            return (
                "nothing there waits for a person under this number: samecommit outbox parked and doubts list what does"
            )
        case "failed":
            return f"not put aside for a person, it is failed: samecommit jobs retry {item} runs it again"
        case _:
            return f"not put aside for a person, it is {outcome}"


@outbox.command()
@click.argument("destination")
@click.option("--reason", metavar="TEXT", help="For whoever wonders.")
@database
@common
def pause(manner: Manner, destination: str, reason: str | None, dsn: str | None, schema: str) -> None:
    """Stop a destination until it is resumed; what is in flight ends, the log keeps the rest."""
    with asking(dsn, schema) as asked:
        asked.pause(destination, reason)
    manner.say({"destination": destination, "is_paused": True}, f"destination {destination!r} is paused")


@outbox.command()
@click.argument("destination")
@database
@common
def resume(manner: Manner, destination: str, dsn: str | None, schema: str) -> None:
    """Let a destination go on."""
    with asking(dsn, schema) as asked:
        asked.resume(destination)
    manner.say({"destination": destination, "is_paused": False}, f"destination {destination!r} goes on")


class Beginning(click.ParamType[Any]):
    """``now``, ``start``, or a moment."""

    name = "now|start|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word, or the moment."""
        if value in ("now", "start") or not isinstance(value, str):
            return value
        return Moment().convert(value, param, ctx)


@outbox.command()
@click.argument("destination")
@click.option("--app", "target", metavar="MODULE:APP", help="The application that declares it; else SAMECOMMIT_APP.")
@click.option(
    "--from", "beginning", type=Beginning(), required=True, help="Where it begins: now, at the log's start, or then."
)
@database
@common
def add(manner: Manner, destination: str, target: str | None, beginning: Any, dsn: str | None, schema: str) -> None:
    """Say where a new destination of the application begins, before its first relay starts.

    A time may be a span, as in 2h ago. A destination that is there already is not moved: replay sends again what it has
    had; remove makes it new.
    """
    from samecommit.cli.locate import locate
    from samecommit.outbox.relays import destination_row

    app = locate(target)
    known = {it.name: it for it in app.destinations()}
    if destination not in known:
        raise Refused(
            f"the application declares no destination {destination!r}; it has {', '.join(map(repr, known)) or 'none'}"
        )
    with asking(*of_app(app, dsn, schema)) as asked:
        there = next((row for row in asked.status() if row["destination"] == destination), None)
        if there is not None:
            raise Refused(
                f"destination {destination!r} stands at window {there['window_n']} and is not moved: samecommit outbox replay "
                "sends again what it has had"
            )
        asked.add(destination_row(known[destination], _begin(asked, beginning)))
    manner.say(
        {"destination": destination, "is_added": True}, f"destination {destination!r} begins at {_said(beginning)}"
    )


def _begin(asked: OutboxOperator, beginning: Any) -> Any:
    """Return where to begin; a span counts on the database's clock."""
    if not isinstance(beginning, Until):
        return beginning
    return (
        beginning.at if beginning.at is not None else asked.log()["now"] - timedelta(seconds=beginning.seconds or 0.0)
    )


def _said(beginning: Any) -> str:
    if not isinstance(beginning, Until):
        return {"now": "what is emitted from now on", "start": "the start of the log"}[beginning]
    return f"{beginning.at:%Y-%m-%d %H:%M:%S}" if beginning.at is not None else f"{span(beginning.seconds or 0.0)} ago"


@outbox.command()
@click.argument("destination")
@database
@common
def remove(manner: Manner, destination: str, dsn: str | None, schema: str) -> None:
    """Forget a destination: its position, what is put aside and its replays. Its jobs stay.

    Take it out of the application first: a relay that knows it adds it again, from where its start says.
    """
    with asking(dsn, schema) as asked:
        asked.remove(destination)
    manner.say({"destination": destination, "is_removed": True}, f"destination {destination!r} is forgotten")
