"""Compares the log with what a destination holds, and tells what is missing there.

The sink looks for each event (`ReadBackSink`), also for what came by a replay: an event that any of them has brought is there.
Events that the destination had no way to have yet are not asked for. Nothing is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from samecommit.clock import Monotonic, monotonic
from samecommit.errors import ConfigError
from samecommit.event import StoredEvent
from samecommit.outbox.courier import Courier
from samecommit.outbox.destination import Destination, StreamDestination
from samecommit.outbox.outcomes import Lookup, NotFound, Unsure
from samecommit.outbox.sink import ReadBackSink, StoredPosition, Target

_LOOK_SECONDS, _PAUSE_SECONDS = 60.0, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a comparison has shown.

    Args:
        checked: how many events were looked for.
        missing: those that are not there, in the order of the log.
        unsure: those of which the destination could not tell, with what it said of the last.
        reason: what it said.
    """

    checked: int
    missing: tuple[StoredEvent, ...]
    unsure: tuple[StoredEvent, ...]
    reason: str = ""


def readable(destination: Destination) -> StreamDestination:
    """Return a destination that can be compared.

    Raises:
        ConfigError: it makes jobs, or its sink cannot be read.
    """
    if not isinstance(destination, StreamDestination):
        raise ConfigError(
            f"destination {destination.name!r} makes jobs, which look for doubtful deliveries themselves: see its jobs, "
            f"samecommit jobs --kind {destination.kind}"
        )
    if not isinstance(destination.sink, ReadBackSink):
        kind = type(destination.sink).__name__
        raise ConfigError(f"destination {destination.name!r} cannot be compared: a {kind} cannot look for events")
    return destination


def is_exclusive(destination: StreamDestination) -> bool:
    """Whether looking would disturb a relay that is at work: who keeps the position may have one producer only."""
    return isinstance(destination.sink.traits.idempotency, StoredPosition)


async def compare(
    destination: StreamDestination,
    installation: str,
    pages: Iterable[Sequence[StoredEvent]],
    replays: Sequence[int] = (),
    *,
    look_seconds: float = _LOOK_SECONDS,
    clock: Monotonic = monotonic,
) -> Compared:
    """Look for events in a destination.

    Args:
        destination: as `readable` returns it.
        installation: part of the name under which its relay writes.
        pages: events that it should have.
        replays: by which an event may have come, too.
        look_seconds: how long to ask about one page, when the destination is unsure.
        clock: for that.
    """
    checked, missing, unsure, reason = 0, list[StoredEvent](), list[StoredEvent](), ""
    for page in pages:
        checked += len(page)
        for shard in range(destination.shards):
            mine = [event for event in page if event.lane % destination.shards == shard]
            target = Target(installation=installation, destination=destination.name, shard=shard)
            courier = Courier(destination.sink_of(shard), target, destination.send_seconds)
            for replay in (0, *replays):
                mine, doubtful, said = await _look(courier, mine, replay, clock() + look_seconds, clock)
                unsure, reason = [*unsure, *doubtful], said or reason
            missing += [replace(event, replay=0) for event in mine]
            await courier.close()
    missing.sort(key=lambda event: event.number)
    return Compared(checked=checked, missing=tuple(missing), unsure=tuple(unsure), reason=reason)


async def _look(
    courier: Courier, events: Sequence[StoredEvent], replay: int, until: float, clock: Monotonic
) -> tuple[list[StoredEvent], list[StoredEvent], str]:
    """Return the events that are not there, those of which nothing is known when the time is over, and why."""
    missing, reason = list[StoredEvent](), ""
    asked: list[StoredEvent] = [replace(event, replay=replay) for event in events]
    while asked:
        found: list[tuple[StoredEvent, Lookup]] = list(zip(asked, await courier.find_existing(asked), strict=True))
        missing += [event for event, it in found if isinstance(it, NotFound)]
        asked = [event for event, it in found if isinstance(it, Unsure)]
        reason = next((it.reason for _, it in found if isinstance(it, Unsure)), "")
        if asked and clock() > until:
            break
        if asked:
            await asyncio.sleep(_PAUSE_SECONDS)
    return missing, asked, reason
