"""Which events to send together, and what their outcomes say of those around them: pure, so that the order promised can be read here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from samecommit.event import StoredEvent
from samecommit.outbox.destination import StreamDestination
from samecommit.outbox.outcomes import Delivered, Duplicate, Outcome
from samecommit.outbox.sink import StoredPosition, Traits

_LOOK_AHEAD = 4


def next_batch(
    pending: Sequence[StoredEvent], destination: StreamDestination, traits: Traits, most: int
) -> Sequence[StoredEvent]:
    """Return what to send now, in order.

    Strict order of keys allows one event per key on its way, unless the sink itself stops a key at its first event that
    is not delivered. One global order allows one event. A sink that stores its position gets the log's order and stops at
    the first event that it does not take, which keeps every order.
    """
    most = min(most, traits.batch)
    if isinstance(traits.idempotency, StoredPosition):
        return pending[:most]
    if destination.order == "global":
        return pending[:1]
    if destination.order == "key" and not traits.keeps_key_order:
        return _wave(pending, most)
    return pending[:most]


def _wave(pending: Sequence[StoredEvent], most: int) -> list[StoredEvent]:
    """Take the first event of each key, and those without one."""
    wave: list[StoredEvent] = []
    seen: set[str] = set()
    for event in islice(pending, most * _LOOK_AHEAD):
        if event.key is None or event.key not in seen:
            wave.append(event)
            if len(wave) == most:
                break
        if event.key is not None:
            seen.add(event.key)
    return wave


def through_first_failure(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """Return the outcomes up to the first that is no success: a sink that stores its position took nothing behind it."""
    for index, outcome in enumerate(outcomes):
        if not isinstance(outcome, Delivered | Duplicate):
            return outcomes[: index + 1]
    return outcomes


def passes(batch: Sequence[StoredEvent], done: set[int], first: StoredEvent) -> bool:
    """Tell whether something behind the first pending event is done already."""
    return any(e.number in done and e.position > first.position for e in batch if e.position and first.position)
