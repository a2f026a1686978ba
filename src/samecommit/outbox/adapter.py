"""What a job destination's code looks like: one event at a time, run as a job of the engine.

For systems that are slow, that limit rates or that cannot tell a repeat: webhooks, CRMs, any API. Matching events are
expanded exactly once into jobs, which bring retries, review and replay. An attempt that ends in doubt is looked up
with ``find_existing`` before anything is sent again; an adapter without it never repeats a doubtful send by itself unless
it says so (``on_doubt = "resend"``): a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

from samecommit.event import Event, StoredEvent
from samecommit.outbox.outcomes import Lookup, Outcome

OnDoubt = Literal["hold", "resend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One attempt to deliver one event to one target.

    Args:
        destination: the configured destination's name.
        target: which of its targets (an endpoint's id); empty when it has one.
        marker: a short text for the record that is made (an external id, a note), by which it can be found again. The same
            for every attempt; a replay has its own.
        attempt: from 1.
        first_at: when the first attempt began; with `last_at` the time in which a record may have been made.
        last_at: when the attempt before this one began, None at the first.
    """

    destination: str
    target: str
    marker: str
    attempt: int
    first_at: datetime
    last_at: datetime | None = None


class Adapter(Protocol):
    """Delivers one event at a time. ``send`` may be cancelled at its time limit; what it raises counts as doubt."""

    async def send(self, event: StoredEvent, delivery: Delivery) -> Outcome:
        """Deliver the event to the delivery's target and say what became of it."""
        ...


@runtime_checkable
class FindsExisting(Protocol):
    """An adapter that can look whether a doubtful send arrived.

    ``settle_seconds`` (an attribute, 60 when missing) is how long after a send its record may still be invisible: at least
    the client's time limit and the delay of the index that is searched. Only then is `NotFound` believed.
    """

    async def find_existing(self, event: StoredEvent, delivery: Delivery) -> Lookup:
        """Look for what an earlier attempt may have made."""
        ...


@runtime_checkable
class FansOut(Protocol):
    """An adapter with several targets: each becomes a job of its own."""

    async def targets(self, event: StoredEvent) -> Sequence[str]:
        """Return the targets of an event, at the time of its expansion; empty when nobody wants it."""
        ...


@runtime_checkable
class Closes(Protocol):
    """An adapter that holds something open: closed when the worker or relay ends."""

    async def close(self) -> None:
        """Let go of everything; may be used again after that."""
        ...


@runtime_checkable
class Complains(Protocol):
    """An adapter that can refuse an event when it is emitted; as `Sink.complaint`."""

    def complaint(self, event: Event) -> str | None:
        """Say why this event could never be delivered, or None; pure."""
        ...
