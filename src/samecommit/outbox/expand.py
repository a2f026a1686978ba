"""Makes jobs of events: for each target one, exactly once, since jobs and position are written in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from samecommit.clock import Monotonic, monotonic
from samecommit.event import StoredEvent
from samecommit.outbox.adapter import FansOut
from samecommit.outbox.carried import carry, effect_key
from samecommit.outbox.destination import JobDestination
from samecommit.outbox.hold import Hold, PositionLost
from samecommit.outbox.log import Log, Page, SharedLink, WindowGone
from samecommit.outbox.replays import Walk, tell_ended
from samecommit.outbox.told import EventsExpanded, RelayStarted, RelayStopped
from samecommit.signals import Signals
from samecommit.tracing import traced

_TAKE_SECONDS, _IDLE_SECONDS = 2.0, 2.0
_REPLAY_ROOM = 200
_MOST_JOBS = 1000  # in one statement, of which each costs up to 0.2 ms; those of one event stay together


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
        self._walk, self._clock, self._replay_due = Walk(link, destination.name, 0), clock, 0.0

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
            replay_delay = await self._replay() if self._hold.has_replay and not self._hold.is_paused else _IDLE_SECONDS
        except PositionLost:
            return self._lost("another relay holds the position")
        except WindowGone as gone:
            self._hold.lose(gone)
            return self._lost("the database was set back")
        if self._hold.is_paused:
            await self._let_go("its destination is paused")
            return _TAKE_SECONDS
        return 0.0 if page.windows else replay_delay

    def _lost(self, reason: str) -> float:
        self._log.forget()
        self._tell_stop(reason)
        return _TAKE_SECONDS

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
        end = page.end if page.windows else self._hold.place
        seen_n = page.windows[-1] if page.windows else end.window_n
        left: Sequence[StoredEvent] = [event for event in page.events if self._destination.matches(event.type)]
        is_over = False
        while not is_over:
            jobs, left = await self._jobs(left)
            await self._hold.move(page.place_before(left[0]) if left else end, seen_n, "event/expand", **jobs)
            self._tell_expanded(jobs)
            is_over = not left or self._hold.is_paused

    def _tell_expanded(self, jobs: dict[str, Any]) -> None:
        if count := len(jobs["payloads"]):
            self._signals.emit(EventsExpanded(destination=self.name, jobs=count))

    async def _jobs(self, events: Sequence[StoredEvent]) -> tuple[dict[str, Any], Sequence[StoredEvent]]:
        """Return the jobs of events, as statements take them, and the events that are left for the next one."""
        jobs: list[tuple[StoredEvent, str]] = []
        count = 0
        while count < len(events) and len(jobs) < _MOST_JOBS:
            event, count = events[count], count + 1
            jobs += [(event, target) for target in await self._targets(event)]
        return self._columns(jobs), events[count:]

    def _columns(self, jobs: Sequence[tuple[StoredEvent, str]]) -> dict[str, Any]:
        return {
            "kind": self._destination.kind,
            "queue": self._destination.queue,
            "max_attempts": self._destination.max_attempts,
            "payloads": [carry(event, target) for event, target in jobs],
            "targets": [target for _, target in jobs],
            "keys": [event.key if self._destination.order == "key" else None for event, _ in jobs],
            "metas": [_meta(event) for event, _ in jobs],
            "effect_keys": [effect_key(event, self.name, target) for event, target in jobs],
        }

    async def _replay(self) -> float:
        """Make jobs again of the next events of the oldest open replay; the delay until the next turn."""
        if (rest := self._replay_due - self._clock()) > 0:
            return min(rest, _IDLE_SECONDS)
        asked = await self._walk.due()
        if asked is None:
            self._hold.has_replay = False
            return _IDLE_SECONDS
        room = _REPLAY_ROOM if asked.per_second is None else min(max(int(asked.per_second), 1), _REPLAY_ROOM)
        events, end = await self._walk.read(asked, asked.after, room)
        jobs, left = await self._jobs(events)
        end = left[0].number - 1 if left else end
        is_done = end >= asked.to_number
        (is_moved, is_open, _) = await self._hold.write(
            "replay/expand",
            replay=asked.id,
            from_after=asked.after,
            after=end,
            sent=len(events) - len(left),
            is_done=is_done,
            **jobs,
        )
        if is_moved:
            self._tell_expanded(jobs)
        elif is_open:
            return 0.0  # somebody has moved it since, most likely we did and the answer was lost
        if is_done or not is_open:
            tell_ended(self._signals, self.name, 0, asked, is_open=is_open)
        self._replay_due = self._clock() + ((len(events) - len(left)) / asked.per_second if asked.per_second else 0.0)
        return 0.0

    async def _targets(self, event: StoredEvent) -> Sequence[str]:
        adapter = self._destination.adapter
        return await adapter.targets(event) if isinstance(adapter, FansOut) else ("",)


def _meta(event: StoredEvent) -> str | None:
    """Return the trace in which an event was emitted, for its jobs."""
    trace = traced(event.extensions)
    return msgspec.json.encode(trace).decode() if trace else None
