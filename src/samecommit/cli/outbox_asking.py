"""What the commands of ``samecommit outbox`` share: the connection, and events named by number or by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from samecommit.cli.failure import Refused
from samecommit.cli.options import resolve_dsn

if TYPE_CHECKING:
    from samecommit.storage.operate_outbox import OutboxOperator

Row = Mapping[str, Any]
Columns = Mapping[str, Callable[[Row], str]]
LIMIT = click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many.")


def asking(dsn: str | None, schema: str) -> OutboxOperator:
    """Connect as an operator of the outbox.

    Raises:
        SchemaError: the schema is missing or does not fit this version.
    """
    from samecommit.storage.operate_outbox import OutboxOperator

    return OutboxOperator.connect(resolve_dsn(dsn), schema)


def numbers_of(asked: OutboxOperator, events: list[str]) -> list[int]:
    """Return the numbers of events given by number or by id.

    Raises:
        Refused: an id is not in the log.
    """
    given = {event: int(event) for event in events if event.isdecimal() and len(event) < 19}
    found = asked.find([event for event in events if event not in given]) if len(given) < len(set(events)) else {}
    if missing := [event for event in events if event not in given and event not in found]:
        raise Refused(f"no event in the log has the id {', '.join(map(repr, missing))}; {kept(asked)}")
    return [given[event] if event in given else found[event] for event in events]


def kept(asked: OutboxOperator) -> str:
    """Say what the log holds."""
    log = asked.log()
    cut = "what was emitted before that is gone" if log["is_cut"] else "nothing has been dropped yet"
    return f"the log begins at {log['begins_at']:%Y-%m-%d %H:%M:%S} UTC, {cut}"
