"""Chores without a leader: whoever moves a chore's ``due_at`` ahead does it, and keeps it while it goes on.

A chore is taken in a short committed transaction and held for a few turns; a process that is stopped in the middle holds
no lock, and when its hold runs out somebody else takes over. Every statement here may run twice at once without harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from samecommit.clock import Monotonic, monotonic
from samecommit.config import WorkerConfig
from samecommit.maintenance.retention import Retention
from samecommit.runtime.service import Service
from samecommit.signals import LeasesReaped, ServiceFailed, Signals
from samecommit.storage.link import AsyncLink

_ROOM = 500
_PROMOTE_SECONDS, _PROMOTE_IDLE_SECONDS = 0.25, 0.5
_IDLE_AFTER_SECONDS = 10.0
_LOOK_SECONDS = 60.0  # at most, between looks at a chore that somebody else does
_SWEEP_EVERY = 6  # turns of the reaper
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Chore:
    """One chore: its turn, how long it is held, and when this process looks at it again."""

    name: str
    run: Callable[[], Awaitable[float]]
    hold_seconds: float
    look_at: float = 0.0
    mine_until: float = 0.0
    failures: int = field(default=0)


class Chores:
    """Runs whatever chore is due here.

    Args:
        dsn: the database.
        schema: the installation.
        config: its intervals and ages.
        signals: where it tells what it found.
    """

    def __init__(
        self, dsn: str, schema: str, config: WorkerConfig, signals: Signals, clock: Monotonic = monotonic
    ) -> None:
        self._config, self._signals, self._clock = config, signals, clock
        self._link = AsyncLink(dsn, schema, "chores")
        self._service = Service("chores", self.run_once, signals)
        self._lease: Callable[[], int | None] = lambda: None
        self._promoted_to = _EPOCH
        self._promoted_at = -1e9
        self._reaps = 0
        self._retention = Retention(self._link, config)
        reap = config.reap_seconds
        self.chores = [
            Chore("promote", self.promote, 3.0),
            Chore("reap", self.reap, reap),
            Chore("kinds", self.sort_kinds, 20.0),
            Chore("holds", self.expire_holds, 30.0),
            Chore("failed", self.age_failed, 300.0),
            Chore("keys", self.sweep_keys, 60.0),
            Chore("days", self._retention.run, 600.0),
            Chore("inbox", self.empty_inbox, 30.0),
        ]
        self._connects = -1

    async def start(self, lease: Callable[[], int | None]) -> None:
        """Do chores for as long as ``lease`` gives one."""
        self._lease = lease
        self._service.start()

    async def finish(self) -> None:
        """Stop after the statement in flight."""
        await self._service.stop(1.0)
        await self._link.close()

    async def run_once(self) -> float:
        """Do what is due; return the seconds to the next look."""
        lease_id = self._lease()
        if lease_id is None:
            return 0.1
        await self._link.connection()
        if self._connects != self._link.connects:
            await self._link.fetch("chore/add", names=[chore.name for chore in self.chores])
            self._connects = self._link.connects
        due = [chore for chore in self.chores if self._clock() >= chore.look_at]
        if wanted := [chore for chore in due if self._clock() >= chore.mine_until]:
            # what is held anyway is renewed in the same statement
            await self._take(wanted + [chore for chore in self.chores if self._clock() < chore.mine_until], lease_id)
        for chore in due:
            if self._clock() < chore.mine_until:
                await self._turn(chore, lease_id)
        return max(0.005, min(chore.look_at for chore in self.chores) - self._clock())

    async def _turn(self, chore: Chore, lease_id: int) -> None:
        try:
            delay = await chore.run()
            chore.failures = 0
        except Exception as error:  # noqa: BLE001 - one chore must not keep the others from their turn
            chore.failures += 1
            delay = min(0.5 * 2.0 ** min(chore.failures, 10), max(30.0, chore.hold_seconds))
            self._signals.emit(ServiceFailed(service=f"chore {chore.name}", error=str(error), retry_seconds=delay))
        chore.look_at = self._clock() + delay
        if delay > chore.hold_seconds:
            chore.mine_until = 0.0
            await self._link.fetch(
                "chore/put_back", name=chore.name, lease_id=lease_id, delay_seconds=delay, error=None
            )

    async def _take(self, wanted: list[Chore], lease_id: int) -> None:
        names, holds = [chore.name for chore in wanted], [float(chore.hold_seconds) for chore in wanted]
        rows = await self._link.fetch("chore/take", names=names, hold_seconds=holds, lease_id=lease_id)
        found, now = {row[0]: row[1:] for row in rows}, self._clock()
        for chore in wanted:
            is_taken, seconds_left = found.get(chore.name, (False, 0.0))
            if is_taken:
                chore.mine_until = now + chore.hold_seconds / 2
            else:
                least = min(1.0, chore.hold_seconds / 2)
                chore.look_at = now + min(max(seconds_left, least), _LOOK_SECONDS)

    async def promote(self) -> float:
        """Put jobs in line whose time has come."""
        # commits come out of order: look a little further back than the last one, and far back now and then
        start = self._promoted_to - timedelta(seconds=5)
        if self._clock() % 15 < _PROMOTE_IDLE_SECONDS * 2:
            start = _EPOCH
        count, newest, _, due = (await self._link.fetch("chore/promote", start=start, room=_ROOM * 2))[0]
        if newest is not None:
            self._promoted_to, self._promoted_at = max(self._promoted_to, newest), self._clock()
        if count >= _ROOM * 2:
            return 0.0
        is_idle = self._clock() - self._promoted_at > _IDLE_AFTER_SECONDS
        pause = _PROMOTE_IDLE_SECONDS if is_idle else _PROMOTE_SECONDS
        return pause if due is None else min(max(due, 0.001), pause)

    async def reap(self) -> float:
        """End leases that ran out, give their jobs back, drop their claim rows."""
        dead = await self._link.fetch("chore/expire_workers")
        await self._link.fetch("chore/reap_cancelled")
        claims, jobs, held, _ = (
            await self._link.fetch(
                "chore/reap",
                room=100,
                crash_limit=self._config.crash_limit,
                crash_delay_seconds=self._config.lease_seconds / 2,
                trouble_seconds=self._config.lease_seconds * 4,
            )
        )[0]
        if jobs or dead:
            self._signals.emit(LeasesReaped(leases=len(dead), jobs=jobs, held=held))
        if dead or claims or self._reaps % _SWEEP_EVERY == 0:
            await self._link.fetch("chore/forget_dead_claims", room=1000)
            await self._link.fetch("chore/sweep_cancellations")
        self._reaps += 1
        return 0.05 if claims >= 100 and jobs else self._config.reap_seconds

    async def sort_kinds(self) -> float:
        """Step unknown kinds out of line, bring known ones back."""
        began = self._clock()
        back = (await self._link.fetch("chore/take_in", room=_ROOM * 2))[0][0]
        aside = (await self._link.fetch("chore/set_aside", room=_ROOM * 2, patience_seconds=10.0))[0][0]
        # under a pinned horizon the head of the line lies behind all that was claimed since: spend at most a hundredth on it
        return 0.0 if max(back, aside) >= _ROOM else max(3.0, 100 * (self._clock() - began))

    async def expire_holds(self) -> float:
        """Fail holds whose date has passed."""
        return 0.0 if len(await self._link.fetch("chore/expire_holds", room=_ROOM)) >= _ROOM else 10.0

    async def age_failed(self) -> float:
        """Move old failed jobs to the history."""
        age = self._config.failed_age_days * 86_400.0
        moved = (await self._link.fetch("chore/age_failed", age_seconds=age, room=_ROOM))[0][0]
        return 0.05 if moved >= _ROOM else 60.0

    async def sweep_keys(self) -> float:
        """Drop unique keys whose window is over."""
        swept, kept = (await self._link.fetch("unique/sweep", room=_ROOM))[0]
        return 0.05 if swept + kept >= _ROOM else 30.0

    async def empty_inbox(self) -> float:
        """Empty one of the inbox's two tables when it is old enough."""
        await self._link.fetch("inbox/empty", keep_seconds=self._config.inbox_days * 86_400.0)
        return 300.0
