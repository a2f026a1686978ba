"""Events that were sent and of which nobody knows whether they arrived: what is done before they are sent again.

It follows what the sink declared (`samecommit.outbox.sink`). A doubt that comes back again and again isolates its event,
which is then sent alone, and at last put aside, so that one event that breaks the connection does not stop the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from samecommit.clock import Monotonic
from samecommit.event import StoredEvent
from samecommit.outbox.courier import Courier
from samecommit.outbox.destination import StreamDestination
from samecommit.outbox.hold import Taken
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
        self.suspects = 0
        self._taken: Taken | None = None
        self.sent_until: datetime | None = None  # the last relay may have sent what was parked and due by then
        self._sent = 0.0
        self._first: dict[int, float] = {}
        self._looks = 0

    def suspect(self, count: int, taken: Taken) -> None:
        """Take the next so many events for doubtful, up to the end of the log: the last relay may have sent them.

        It sent nothing after that moment, so one wait is enough for all pages, and for what is parked.
        """
        self.suspects, self._taken = count, taken
        self.sent_until, self._sent = taken.at, taken.clock

    def add(self, event: StoredEvent) -> None:
        """Note a doubtful send."""
        self._sent = self._clock()
        self._first.setdefault(event.number, self._sent)
        self.numbers.add(event.number)
        self.tries[event.number] = self.tries.get(event.number, 0) + 1

    def worn_out(self, pending: Sequence[StoredEvent]) -> list[StoredEvent]:
        """Return those that have come back in doubt so often that they are to be put aside, once that doubt is cleared up."""
        tries = self.tries
        return [
            replace(event, attempt=tries[event.number])
            for event in pending
            if tries.get(event.number, 0) >= _ASIDE_TRIES and event.number not in self.numbers
        ]

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
        self._first.clear()
        if self.suspects and events:
            suspects = events[: self.suspects]
            self.suspects -= len(suspects)
            self._first = {event.number: self._earliest_send(event) for event in suspects}
            self.numbers = set(self._first)
        if self._courier.has_position and await self._courier.connect() is None:
            return [event for event in events if not self._is_stored(event)]
        return events

    def _earliest_send(self, event: StoredEvent) -> float:
        """Tell when the last relay can have sent an event first: neither before it was emitted nor before its last move."""
        assert self._taken is not None
        since_emit = (self._taken.at - event.time).total_seconds()
        return self._taken.clock - max(min(since_emit, self._taken.since_move), 0.0)

    def _is_stored(self, event: StoredEvent) -> bool:
        stored = self._courier.position
        return stored is not None and event.position is not None and event.position <= stored

    async def clarify(self, pending: Sequence[StoredEvent]) -> tuple[float, set[int]]:
        """Find out what arrived; (delay until one may know more, the numbers that are there)."""
        events = [event for event in pending if event.number in self.numbers]
        self.numbers = {event.number for event in events}
        first = min((self._first[number] for number in self.numbers), default=0.0)
        match self._traits.idempotency:
            case StoredPosition():
                return await self._by_position(events)
            case ReadBack(settle_seconds=settle):
                return await self._by_look(events, self._sent + settle)
            case DropsRepeats(seconds=seconds) if self._clock() - first < seconds:
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

    async def look_at(self, events: Sequence[StoredEvent], ages: Mapping[int, float]) -> dict[int, Lookup]:
        """Look once for parked events whose last attempt was in doubt, by number; what cannot be read is taken as not there.

        All at once: one look of a few seconds for each would outlive the lease.

        Args:
            events: as many as one ``send`` takes.
            ages: for how many seconds each has been parked, by number.
        """
        if not events:
            return {}
        found: Sequence[Lookup]
        if not self._can_look:
            self._tell_forgotten([ages[event.number] for event in events])
            found = [NotFound()] * len(events)
        elif self._clock() < self._sent + self.settle_seconds:
            found = [Unsure("waits until the destination would show it")] * len(events)
        else:
            found = await self._courier.find_existing(events)
        return {event.number: it for event, it in zip(events, found, strict=True)}

    def _tell_forgotten(self, ages: Sequence[float]) -> None:
        it = self._traits.idempotency
        count = sum(not (isinstance(it, DropsRepeats) and age < it.seconds) for age in ages)
        if count:
            name = self._destination.name
            self._signals.emit(RepeatPossible(destination=name, count=count, reason="sent again in doubt"))

    @property
    def settle_seconds(self) -> float:
        """How long after a send the destination may not show it yet."""
        it = self._traits.idempotency
        return it.settle_seconds if isinstance(it, ReadBack) else 0.0
