"""``samecommit outbox reconcile``: asks a destination what it holds, and tells what is missing there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.failure import Exit, Refused
from samecommit.cli.options import Manner, common, database, of_app
from samecommit.cli.outbox_asking import Columns, asking
from samecommit.cli.show import table, when
from samecommit.cli.values import Moment
from samecommit.storage.operate import Until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samecommit.event import StoredEvent
    from samecommit.outbox.destination import StreamDestination
    from samecommit.outbox.reconcile import Compared
    from samecommit.storage.operate_outbox import EventFilter, OutboxOperator

_REPLAYS = 20
MISSING: Columns = {
    "event": lambda row: str(row["number"]),
    "id": lambda row: row["id"],
    "key": lambda row: row["key"] or "",
    "emitted": lambda row: when(row["created_at"]),
    "type": lambda row: row["type"],
}


@click.command()
@click.argument("destination")
@click.option("--app", "target", metavar="MODULE:APP", help="The application that declares it; else SAMECOMMIT_APP.")
@click.option("--since", type=Moment(), required=True, help="Events emitted since then: 2h (ago), 1d or a time.")
@click.option("--until", type=Moment(), help="Emitted before then.")
@click.option("--replay-missing", is_flag=True, help="Ask for what is missing to be sent again.")
@database
@common
def reconcile(
    manner: Manner, destination: str, target: str | None, since: Until, until: Until | None, dsn: str | None, schema: str, *,
    replay_missing: bool,
) -> int:  # fmt: skip
    """Look for the events of a stretch of the log in a destination, and print those that are not there.

    Ends with status 1 when something is missing, or the destination could not tell. Works where the sink can look: Kafka,
    NATS, Table. One that keeps the position has a single producer, so its relay has to be paused. Needs the rights of a
    worker, and reads only.
    """
    from samecommit.cli.locate import locate
    from samecommit.outbox.reconcile import readable
    from samecommit.storage.operate_outbox import EventFilter

    app = locate(target)
    known = {it.name: it for it in app.destinations()}
    if destination not in known:
        raise Refused(
            f"the application declares no destination {destination!r}; it has {', '.join(map(repr, known)) or 'none'}"
        )
    with asking(*of_app(app, dsn, schema)) as asked:
        shown = _compare(asked, readable(known[destination]), EventFilter(since=since, until=until))
        made = None
        if replay_missing and shown.missing:
            numbers = [event.number for event in shown.missing]
            made = asked.replay(destination, EventFilter(numbers=numbers), note="missing at the destination")
    rows = [_row(event) for event in shown.missing]
    data = {
        "checked": shown.checked,
        "missing": rows,
        "unsure": [_row(event) for event in shown.unsure],
        "reason": shown.reason,
    }
    manner.say({**data, "replay": made["id"] if made else None}, *_lines(shown, rows, made))
    return Exit.FAILED if shown.missing or shown.unsure else Exit.OK


def _compare(asked: OutboxOperator, destination: StreamDestination, chosen: EventFilter) -> Compared:
    from samecommit.outbox.reconcile import compare, is_exclusive

    rows = [row for row in asked.status() if row["destination"] == destination.name]
    if is_exclusive(destination) and any(row["has_relay"] for row in rows):
        raise Refused(
            f"destination {destination.name!r} keeps the position and has one producer, its relay ({rows[0]['relay']}): "
            f"samecommit outbox pause {destination.name} first, and resume it afterwards"
        )
    replays = [row["id"] for row in asked.replays(limit=1000) if row["destination"] == destination.name and row["sent"]]
    return asyncio.run(
        compare(destination, asked.installation(), _pages(asked, destination.name, chosen), replays[:_REPLAYS])
    )


def _pages(asked: OutboxOperator, destination: str, chosen: EventFilter) -> Iterator[list[StoredEvent]]:
    from samecommit.outbox.log import stored_event

    for rows in asked.had(destination, chosen):
        yield [stored_event(tuple(row.values()), None) for row in rows]


def _row(event: StoredEvent) -> dict[str, Any]:
    return {"number": event.number, "id": event.id, "key": event.key, "type": event.type, "created_at": event.time}


def _lines(shown: Compared, rows: list[dict[str, Any]], made: dict[str, Any] | None) -> list[Any]:
    lines: list[Any] = [f"{shown.checked} events looked for, {len(rows)} missing"]
    if shown.unsure:
        lines.append(f"of {len(shown.unsure)} nothing could be found out: {shown.reason}")
    if rows:
        lines.append(table(rows, MISSING))
    if made:
        lines.append(f"replay {made['id']} is asked for; samecommit outbox replays shows how far it is")
    return lines
