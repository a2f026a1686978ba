"""Writes each event as a line of JSON (``application/cloudevents+json``) to a stream: for development."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from samecommit.event import Event, StoredEvent
from samecommit.outbox.outcomes import Delivered, Outcome
from samecommit.outbox.sink import NoIdempotency, Target, Traits


class Stdout:
    """The sink.

    Args:
        stream: where to write; None is the standard output at the time of the send.
    """

    traits = Traits(idempotency=NoIdempotency(), keeps_key_order=True)

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def __repr__(self) -> str:
        return f"<Stdout {self._stream or 'stdout'}>"

    def complaint(self, event: Event) -> str | None:
        """Take every event."""

    async def connect(self, target: Target) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is to be closed."""

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Write and flush the lines."""
        stream = self._stream or sys.stdout
        stream.write("".join([event.line().decode() for event in batch]))
        stream.flush()
        return [Delivered()] * len(batch)
