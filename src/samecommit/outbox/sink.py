"""What the relay asks of a destination's code.

A `Sink` carries batches of events to one kind of system. The relay owns order, retries and positions; a sink only sends,
and tells of each event what became of it. It declares what it can do about repeats (`Idempotency`), and the relay acts on it:

===================  =============================================================================================
capability           after a doubt or a restart
===================  =============================================================================================
``StoredPosition``   the sink writes the place of the last event with the events themselves, atomically. The relay asks
                     ``position()`` and goes on behind it: effectively once, however long it was away
``ReadBack``         the relay asks ``find_existing()``, after the settle time, and sends only what is not there
``DropsRepeats``     sent again with the same ``dedupe_id``: dropped by the destination within so many seconds. Past that
                     time by ``find_existing()`` if the sink has it; else sent again, and told as a possible repeat
``NoIdempotency``    sent again; the receiver drops repeats (see the inbox)
===================  =============================================================================================

The relay calls one method at a time. ``send`` runs under its time limit and may be cancelled at any await; whatever it raises
counts as doubt about the whole batch, after which the sink is closed and connected again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from samecommit.event import Event, Position, StoredEvent
from samecommit.outbox.outcomes import Lookup, Outcome


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """The sink is a `PositionSink`."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The sink is a `ReadBackSink`; what it does not find so many seconds after the attempt is not there."""

    settle_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DropsRepeats:
    """The destination drops a repeated ``dedupe_id`` for so many seconds after it first saw it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NoIdempotency:
    """The destination cannot tell a repeat."""


Idempotency: TypeAlias = StoredPosition | ReadBack | DropsRepeats | NoIdempotency


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a sink can do.

    Args:
        idempotency: about repeats.
        batch: most events in one ``send``.
        keeps_key_order: within one ``send``, after an event that was not delivered no later event of its key is. A batch that
            is written whole or not at all keeps it. Without it the relay sends at most one event per key at once where a
            destination asks for strict order.
    """

    idempotency: Idempotency
    batch: int = 500
    keeps_key_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """For whom a sink works: the configured destination and which part of its keys."""

    installation: str
    destination: str
    shard: int = 0

    @property
    def name(self) -> str:
        """A name for positions and producers: unique among all that write to the same system, stable for ever."""
        return f"samecommit:{self.installation}:{self.destination}:{self.shard}"


class Sink(Protocol):
    """Sends events to one system. Making one does no I/O."""

    @property
    def traits(self) -> Traits: ...

    def complaint(self, event: Event) -> str | None:
        """Say why this system would never take the event (size, characters of the key), or None; pure, asked at emit."""
        ...

    async def connect(self, target: Target) -> None:
        """Open what is needed; after `close` also again. Raises anything when the system cannot be reached."""
        ...

    async def close(self) -> None:
        """Let go of everything, also in a broken state; safe to repeat, must not raise or hang."""
        ...

    async def send(self, batch: Sequence[StoredEvent]) -> Sequence[Outcome]:
        """Send in order; return one outcome per event, in the same order. Wait for real acknowledgements.

        An event whose ``position`` is None is late (a retry behind others, a replay): send it and leave the stored position.
        """
        ...


@runtime_checkable
class PositionSink(Protocol):
    """A sink that keeps its target's position in the system, written atomically with the events.

    ``send`` must compare and set: an event at or before the stored position is not written and is a `Duplicate`, so that a
    relay that was stopped past its lease and wakes up in the middle of a send writes nothing twice.

    ``send`` must take events in order and stop at the first one that it does not take, since a stored position covers all
    before it: what it answers for those behind is not looked at. The relay writes down what becomes of that event before it
    sends the next ones, and sends such batches in the order of the log whatever order the destination asked for.
    """

    async def position(self) -> Position | None:
        """Return the stored position, None when nothing was ever stored."""
        ...


@runtime_checkable
class ReadBackSink(Protocol):
    """A sink that can look for events in the system."""

    async def find_existing(self, batch: Sequence[StoredEvent]) -> Sequence[Lookup]:
        """Tell for each event whether it is there; one answer per event, in the same order."""
        ...
