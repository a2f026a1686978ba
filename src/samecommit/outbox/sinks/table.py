"""Inserts events into a table of any PostgreSQL database, with the position in the same statement: effectively once.

For development, for tests, and for a second database that wants to follow. The schema is made when it is missing; its table
``event`` has one row per event: CloudEvents attributes and data. Only who makes it needs the right to.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import psycopg

from samecommit.event import Event, Position, StoredEvent
from samecommit.outbox.courier import describe
from samecommit.outbox.outcomes import (
    Delivered,
    DestinationDown,
    Duplicate,
    Found,
    Lookup,
    NotFound,
    Outcome,
    Rejected,
    Retry,
)
from samecommit.outbox.sink import StoredPosition, Target, Traits
from samecommit.storage.link import AsyncLink, LinkBusy
from samecommit.storage.query import check_schema

_REFUSALS = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException)


class Table:
    """The sink.

    Args:
        dsn: the database.
        schema: where the table ``event`` is.
    """

    traits = Traits(idempotency=StoredPosition(), keeps_key_order=True)

    def __init__(self, dsn: str, schema: str = "copied") -> None:
        self._link = AsyncLink(dsn, check_schema(schema), "table sink")
        self._target = self._destination = ""

    def __repr__(self) -> str:
        return f"<Table {self._link.schema!r}>"

    def complaint(self, event: Event) -> str | None:
        """Take every event."""

    async def connect(self, target: Target) -> None:
        """Connect, and make what is missing.

        Raises:
            LinkDown: the database cannot be reached.
        """
        self._target, self._destination = target.name, target.destination
        if not (await self._link.fetch("copy/is_made"))[0][0]:
            for label in ("copy/make_schema", "copy/make_table", "copy/make_position"):
                await self._link.fetch(label)
        await self.position()

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    async def position(self) -> Position | None:
        """Return the position of the last event that was inserted."""
        text = (await self._link.fetch("copy/begin", target=self._target))[0][0]
        return Position.parse(text) if text else None

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Insert the events that are not there; when a constraint or a trigger refuses one, those before it."""
        try:
            return await self._insert(batch)
        except _REFUSALS as error:
            if len(batch) == 1:
                return [Rejected(describe(error))]
        outcomes: list[Outcome] = []
        for event in batch:
            outcomes += await self.send([event])
            if not isinstance(outcomes[-1], Delivered | Duplicate):
                break  # the position must not pass an event that is not there
        return outcomes + [Retry("not sent, since one before it was not taken")] * (len(batch) - len(outcomes))

    async def _insert(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        try:
            rows = await self._link.fetch(
                "copy/send",
                target=self._target,
                destination=self._destination,
                ids=[event.id for event in batch],
                sources=[event.source for event in batch],
                replays=[event.replay for event in batch],
                positions=[None if event.position is None else str(event.position) for event in batch],
                types=[event.type for event in batch],
                keys=[event.key for event in batch],
                attributes=[msgspec.json.encode(event.attributes()).decode() for event in batch],
                content_types=[event.content_type for event in batch],
                bodies=[event.data for event in batch],
            )
        except LinkBusy as error:
            return [DestinationDown(str(error))] * len(batch)
        if len(rows) != len(batch):
            return [DestinationDown("the row of its position is gone, so nothing was inserted")] * len(batch)
        return [Delivered() if is_new else Duplicate() for (is_new,) in rows]

    async def find_existing(self, batch: Sequence[StoredEvent]) -> Sequence[Lookup]:
        """Look for events in the table."""
        rows = await self._link.fetch("copy/find", destination=self._destination, ids=[event.id for event in batch])
        there = set(rows)
        return [Found(event.id) if (event.id, event.source, event.replay) in there else NotFound() for event in batch]
