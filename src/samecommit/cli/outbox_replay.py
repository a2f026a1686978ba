"""``samecommit outbox replay`` and ``replays``: sends events again, and lists what was asked for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.failure import Refused
from samecommit.cli.options import Manner, common, database
from samecommit.cli.outbox_asking import LIMIT, Columns, Row, asking, kept, numbers_of
from samecommit.cli.show import table, when
from samecommit.cli.values import Moment
from samecommit.storage.operate import Until

if TYPE_CHECKING:
    from samecommit.storage.operate_outbox import OutboxOperator

_LONGEST = 40


@click.command()
@click.argument("destination")
@click.option(
    "--id", "ids", multiple=True, metavar="EVENT", help="This event: its number in the log, or its id. May be repeated."
)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Events of this key. May be repeated.")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Of this type, or beginning as in lead.*. May be repeated."
)
@click.option("--since", type=Moment(), help="Emitted since then: 2h (ago), 1d or a time.")
@click.option("--until", type=Moment(), help="Emitted before then.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most so many events a second."
)
@click.option("--note", metavar="TEXT", help="For whoever wonders.")
@click.option("--dry-run", is_flag=True, help="Count what would be sent, and show the first.")
@database
@common
def replay(
    manner: Manner, destination: str, ids: tuple[str, ...], keys: tuple[str, ...], types: tuple[str, ...],
    since: Until | None, until: Until | None, rate: float | None, note: str | None, dsn: str | None, schema: str, *,
    dry_run: bool,
) -> None:  # fmt: skip
    """Send events again that the destination has had, without moving its position.

    Options that are given together narrow: an event has to fit all of them. A running relay carries it out, beside what is
    new; replays shows how far it is. Events keep their ids, so receivers that remember ids see repeats; they are marked with
    the replay's number. What the destination has not got yet comes by itself, what is put aside waits for resolve.
    """
    from samecommit.storage.operate_outbox import EventFilter

    with asking(dsn, schema) as asked:
        chosen = EventFilter(
            numbers=_in_the_log(asked, numbers_of(asked, list(ids))) if ids else None,
            keys=keys or None,
            types=types or None,
            since=since,
            until=until,
        )
        if dry_run:
            counted = asked.count_replay(destination, chosen)
            manner.say(counted, *_counted(counted), *_gone(asked, counted["since_at"]))
            return
        made = asked.replay(destination, chosen, per_second=rate, note=note)
        lost = _gone(asked, made["since_at"])
    manner.say(
        made, f"replay {made['id']} is asked for; samecommit outbox replays shows how far it is", *lost, gone=bool(lost)
    )


def _in_the_log(asked: OutboxOperator, numbers: list[int]) -> list[int]:
    log = asked.log()
    least = log["newest"] + 1 if log["oldest"] is None else log["oldest"]
    if missing := [number for number in numbers if not least <= number <= log["newest"]]:
        raise Refused(f"no event in the log has the number {', '.join(map(str, missing))}; {kept(asked)}")
    return numbers


def _counted(counted: Row) -> list[Any]:
    least = "at least " if counted["is_cut"] else ""
    lines: list[Any] = [f"{least}{counted['events']} event{'s' * (counted['events'] != 1)} would be sent again"]
    if counted["is_cut"]:
        lines.append(f"counted up to number {counted['upto']} of {counted['to_number']}")
    return [*lines, table(counted["first"], FIRST)] if counted["first"] else lines


def _gone(asked: OutboxOperator, since: datetime | None) -> list[str]:
    """Say which part of what was asked for is not in the log any more."""
    log = asked.log()
    if since is None or not log["is_cut"] or since >= log["begins_at"]:
        return []
    return [f"what was emitted from {since:%Y-%m-%d %H:%M} UTC on is asked for, and a part is gone: {kept(asked)}"]


FIRST: Columns = {
    "event": lambda row: str(row["number"]),
    "id": lambda row: row["id"],
    "key": lambda row: row["key"] or "",
    "emitted": lambda row: when(datetime.fromisoformat(row["created_at"])),
    "type": lambda row: row["type"],
}
REPLAYS: Columns = {
    "replay": lambda row: str(row["id"]),
    "destination": lambda row: row["destination"],
    "state": lambda row: row["state"],
    "of the log": lambda row: f"{row['progress']:.0%}",
    "sent": lambda row: str(row["sent"]),
    "refused": lambda row: str(row["refused"]) if row["refused"] else "",
    "asked for": lambda row: when(row["requested_at"]),
    "by": lambda row: row["requested_by"],
    "of": lambda row: _filter(row),
    "error": lambda row: row["trouble"] or row["refusal"] or "",
}


def _filter(row: Row) -> str:
    parts = [
        f"{len(row['numbers'])} events" if row["numbers"] else "",
        f"keys {', '.join(row['keys'])}" if row["keys"] else "",
        f"types {', '.join(row['types'])}" if row["types"] else "",
        f"since {row['since_at']:%Y-%m-%d %H:%M}" if row["since_at"] else "",
        f"until {row['until_at']:%Y-%m-%d %H:%M}" if row["until_at"] else "",
    ]
    return "; ".join(part if len(part) <= _LONGEST else f"{part[:_LONGEST]}…" for part in parts if part)


@click.command()
@click.option(
    "--cancel",
    type=click.IntRange(1, 2**31 - 1),
    metavar="REPLAY",
    help="End this one where it is, instead of listing.",
)
@LIMIT
@database
@common
def replays(manner: Manner, cancel: int | None, limit: int, dsn: str | None, schema: str) -> None:
    """List the replays, the newest first, or cancel one. They are kept for 30 days."""
    with asking(dsn, schema) as asked:
        if cancel is not None:
            if not asked.cancel_replay(cancel):
                raise Refused(f"replay {cancel} has ended, or there is none: samecommit outbox replays lists them")
            manner.say(
                {"id": cancel, "state": "cancelled"}, f"replay {cancel} is cancelled; what is on its way arrives"
            )
            return
        rows = asked.replays(limit=limit)
    manner.say(rows, table(rows, REPLAYS) if rows else "no replay was asked for")
