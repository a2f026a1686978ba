"""A sink with a time limit, a connection that heals, and an answer for every event whatever the sink does.

Whatever is not answered is in doubt, and the sink is closed after that: what it was doing must not go on beside the next
attempt. A sink that cannot connect took nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from samecommit.event import Position, StoredEvent
from samecommit.outbox.outcomes import DestinationDown, Doubt, Lookup, Outcome, Unsure
from samecommit.outbox.sink import PositionSink, ReadBackSink, Sink, StoredPosition, Target
from samecommit.payload.text import clean_text

_CLOSE_SECONDS = 5.0
_ERROR_BYTES = 2_000


class Courier:
    """Sends through one sink.

    Args:
        sink: the destination's code.
        target: for whom it works.
        send_seconds: the longest ``connect``, ``send`` or look.

    ``is_cut_off`` tells that the last send was cancelled: what it sent is in doubt.
    """

    def __init__(self, sink: Sink, target: Target, send_seconds: float) -> None:
        self._sink, self._target, self._seconds = sink, target, send_seconds
        self._is_connected = self.is_cut_off = False
        self.position: Position | None = None

    def __repr__(self) -> str:
        return f"<Courier {self._target.name} {'connected' if self._is_connected else 'closed'}>"

    @property
    def has_position(self) -> bool:
        """Whether the destination keeps the position."""
        return isinstance(self._sink.traits.idempotency, StoredPosition)

    async def connect(self) -> DestinationDown | None:
        """Connect when that is needed, and read the stored position; the reason when it fails."""
        if self._is_connected:
            return None
        try:
            async with asyncio.timeout(self._seconds):
                await self._sink.connect(self._target)
                if self.has_position and isinstance(self._sink, PositionSink):
                    self.position = await self._sink.position()
        except Exception as error:  # noqa: BLE001 - a sink may raise anything
            await self.close()
            return DestinationDown(describe(error))
        self._is_connected = True
        return None

    async def close(self) -> None:
        """Let go of the destination; never raises."""
        self._is_connected = False
        with suppress(Exception):  # it is given up anyway
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._sink.close()

    async def send(self, batch: Sequence[StoredEvent], renew: Callable[[], Awaitable[None]]) -> Sequence[Outcome]:
        """Send and return one outcome per event.

        Args:
            batch: what to send.
            renew: makes sure of the lease; called right before the sink, since connecting may have taken as long as a send may.
                What it raises passes, and nothing was sent.
        """
        if (down := await self.connect()) is not None:
            return [down] * len(batch)
        await renew()
        self.is_cut_off = True  # and so it stays when this is cancelled before there is an answer
        outcomes = await self._answers(batch)
        self.is_cut_off = False
        return outcomes

    async def _answers(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        try:
            async with asyncio.timeout(self._seconds):
                outcomes = await self._sink.send(batch)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything
            await self.close()
            return [Doubt(describe(error))] * len(batch)
        if len(outcomes) != len(batch):
            await self.close()
            return [Doubt(f"the sink answered for {len(outcomes)} of {len(batch)} events")] * len(batch)
        if any(isinstance(outcome, Doubt | DestinationDown) for outcome in outcomes):
            await self.close()
        return outcomes

    async def find_existing(self, batch: Sequence[StoredEvent]) -> Sequence[Lookup]:
        """Look for events in the destination; unsure whenever that fails."""
        if (down := await self.connect()) is not None:
            return [Unsure(down.reason)] * len(batch)
        assert isinstance(self._sink, ReadBackSink)
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._sink.find_existing(batch)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything
            await self.close()
            return [Unsure(describe(error))] * len(batch)
        return (
            found
            if len(found) == len(batch)
            else [Unsure("the sink answered for another number of events")] * len(batch)
        )


def describe(error: BaseException) -> str:
    """Say what an exception says, as text that can be stored: without a database's DETAIL, which shows rows."""
    try:
        said = str(error).partition("\nDETAIL:")[0]
    except Exception:  # noqa: BLE001 - a broken __str__
        said = "its text could not be read"
    return clean_text(f"{type(error).__name__}: {said}" if said else type(error).__name__, limit_bytes=_ERROR_BYTES)
