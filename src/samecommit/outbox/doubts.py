"""Events that were sent and of which nobody knows whether they arrived: what is done before they are sent again.

It follows what the sink declared (`samecommit.outbox.sink`). A doubt that comes back again and again isolates its event,
which is then sent alone, and at last put aside, so that one event that breaks the connection does not stop the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from samecommit.clock import Monotonic
from samecommit.event import StoredEvent
from samecommit.outbox.courier import Courier
from samecommit.outbox.destination import StreamDestination
from samecommit.outbox.outcomes import Found, Lookup, NotFound, Unsure
from samecommit.outbox.parking import backoff
from samecommit.outbox.sink import DropsRepeats, NoIdempotency, ReadBack, ReadBackSink, StoredPosition, Traits
from samecommit.outbox.told import RepeatPossible
from samecommit.signals import Signals

_ALONE_TRIES, _ASIDE_TRIES = 3, 6


class Doubts:
    """The doubtful events of one relay.

    Args:
        courier: how to look into the destination.
        traits: what its sink declared.
    """

    def __init__(
        self,
        courier: Courier,
        traits: Traits,
        destination: StreamDestination,
        signals: Signals,
        clock: Monotonic,
    ) -> None:
        self._courier, self._traits, self._destination = courier, traits, destination
        self._signals, self._clock = signals, clock
        self._can_look = isinstance(destination.sink, ReadBackSink)
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.numbers: set[int] = set()
        self.tries: dict[int, int] = {}
        self.suspect_next_page = False
        self._began = self._sent = 0.0
        self._looks = 0

    def add(self, event: StoredEvent) -> bool:
        """Note a doubtful send; True when it has happened so often that the event should be put aside."""
        now = self._clock()
        if not self.numbers:
            self._began = now
        self._sent = now
        self.numbers.add(event.number)
        self.tries[event.number] = self.tries.get(event.number, 0) + 1
        if self.tries[event.number] < _ASIDE_TRIES:
            return False
        self.numbers.discard(event.number)
        return True

    def isolates(self, event: StoredEvent) -> bool:
        """Whether an event has been in doubt so often that it is sent alone."""
        return self.tries.get(event.number, 0) >= _ALONE_TRIES

    def with_attempt(self, event: StoredEvent) -> StoredEvent:
        """Return the event with the number of this attempt."""
        tries = self.tries.get(event.number, 0)
        return replace(event, attempt=tries + 1) if tries else event

    async def page_came(self, events: list[StoredEvent]) -> list[StoredEvent]:
        """Look at a new page: what the last relay may have sent before it was cut off is in doubt."""
        self.tries.clear()
        if self.suspect_next_page and events:
            self.suspect_next_page = False
            if isinstance(self._traits.idempotency, ReadBack):
                self._began = self._sent = self._clock()
                self.numbers = {event.number for event in events}
        if self._courier.has_position and await self._courier.connect() is None:
            return [event for event in events if not self._is_stored(event)]
        return events

    def _is_stored(self, event: StoredEvent) -> bool:
        stored = self._courier.position
        return stored is not None and event.position is not None and event.position <= stored

    async def clarify(self, pending: Sequence[StoredEvent]) -> tuple[float, set[int]]:
        """Find out what arrived; (delay until one may know more, the numbers that are there)."""
        events = [event for event in pending if event.number in self.numbers]
        match self._traits.idempotency:
            case StoredPosition():
                return await self._by_position(events)
            case ReadBack(settle_seconds=settle):
                return await self._by_look(events, self._sent + settle)
            case DropsRepeats(seconds=seconds) if self._clock() - self._began < seconds:
                self.numbers.clear()
            case DropsRepeats() if self._can_look:
                return await self._by_look(events, self._sent)
            case DropsRepeats(seconds=seconds):
                self._tell_repeat(len(events), f"the destination forgets repeats after {seconds:g} s")
            case NoIdempotency():
                self._tell_repeat(len(events), "the destination cannot tell repeats")
        return 0.0, set()

    def _tell_repeat(self, count: int, reason: str) -> None:
        self.numbers.clear()
        self._signals.emit(RepeatPossible(destination=self._destination.name, count=count, reason=reason))

    async def _by_position(self, events: list[StoredEvent]) -> tuple[float, set[int]]:
        if await self._courier.connect() is not None:
            return self._later(), set()
        self.numbers.clear()
        return 0.0, {event.number for event in events if self._is_stored(event)}

    async def _by_look(self, events: list[StoredEvent], settled: float) -> tuple[float, set[int]]:
        if (rest := settled - self._clock()) > 0:
            return rest, set()
        events = events[: self._traits.batch]
        found = await self._courier.find_existing(events)
        known = [(event, it) for event, it in zip(events, found, strict=True) if not isinstance(it, Unsure)]
        self.numbers.difference_update(event.number for event, _ in known)
        if known:
            self._looks = 0
        arrived = {event.number for event, it in known if isinstance(it, Found)}
        return (0.001 if known else self._later()) if self.numbers else 0.0, arrived

    def _later(self) -> float:
        self._looks += 1
        return backoff(self._looks, 0.25, 60.0)

    async def look(self, event: StoredEvent) -> Lookup:
        """Look once for a parked event whose last attempt was in doubt; what cannot be read is taken as not there."""
        if not self._can_look:
            return NotFound()
        (found,) = await self._courier.find_existing([event])
        return found

    @property
    def settle_seconds(self) -> float:
        """How long after a send the destination may not show it yet."""
        it = self._traits.idempotency
        return it.settle_seconds if isinstance(it, ReadBack) else 0.0
