"""Makes jobs of events: for each target one, exactly once, since jobs and position are written in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from samecommit.clock import Monotonic, monotonic
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import FansOut
from samecommit.outbox.carried import carry, effect_key
from samecommit.outbox.destination import JobDestination
from samecommit.outbox.hold import Hold, PositionLost
from samecommit.outbox.log import Log, Page, SharedLink
from samecommit.outbox.told import EventsExpanded, RelayStarted, RelayStopped
from samecommit.signals import Signals

_TAKE_SECONDS, _IDLE_SECONDS = 2.0, 2.0


class Expander:
    """Works on the position of one job destination; `run_once` is one page.

    Args:
        destination: what is configured.
        log: where events come from.
        link: where jobs and position are written.
        holder: this process, a random number.
    """

    def __init__(
        self,
        destination: JobDestination,
        log: Log,
        link: SharedLink,
        signals: Signals,
        *,
        holder: int,
        clock: Monotonic = monotonic,
    ) -> None:
        self._destination, self._log, self._signals = destination, log, signals
        self._hold = Hold(link, destination.name, 0, holder, destination.lease_seconds, clock)

    def __repr__(self) -> str:
        return f"<Expander {self._destination.name} {self._hold}>"

    @property
    def name(self) -> str:
        """Whose expander this is."""
        return self._destination.name

    async def run_once(self) -> float:
        """Take the position, or expand the next page; the delay until the next turn."""
        try:
            if not self._hold.is_held:
                return await self._take()
            page = await self._log.page(self._hold.place)
            if page.windows or self._hold.is_old:
                await self._expand(page)
        except PositionLost:
            self._tell_stop("another relay holds the position")
            return _TAKE_SECONDS
        if self._hold.is_paused:
            await self._let_go("its destination is paused")
            return _TAKE_SECONDS
        return 0.0 if page.windows else _IDLE_SECONDS

    def look_again(self) -> None:
        """Look at the pause at the next turn."""
        self._hold.make_old()

    async def stop(self) -> None:
        """Let go of the position."""
        if self._hold.is_held:
            await self._let_go("asked to stop")

    async def _take(self) -> float:
        if await self._hold.take() is None:
            return _TAKE_SECONDS
        self._signals.emit(RelayStarted(destination=self.name, shard=0, is_clean=True))
        return 0.0

    async def _let_go(self, reason: str) -> None:
        await self._hold.give_up(is_clean=True)
        self._tell_stop(reason)

    def _tell_stop(self, reason: str) -> None:
        self._signals.emit(RelayStopped(destination=self.name, shard=0, reason=reason))

    async def _expand(self, page: Page) -> None:
        wanted = [event for event in page.events if self._destination.matches(event.type)]
        jobs = [(event, target) for event in wanted for target in await self._targets(event)]
        place = page.end if page.windows else self._hold.place
        await self._hold.move(
            place,
            "event/expand",
            kind=self._destination.kind,
            queue=self._destination.queue,
            max_attempts=self._destination.max_attempts,
            payloads=[carry(event, target) for event, target in jobs],
            effect_keys=[effect_key(event, self.name, target) for event, target in jobs],
        )
        if jobs:
            self._signals.emit(EventsExpanded(destination=self.name, jobs=len(jobs)))

    async def _targets(self, event: StoredEvent) -> Sequence[str]:
        adapter = self._destination.adapter
        return await adapter.targets(event) if isinstance(adapter, FansOut) else ("",)
