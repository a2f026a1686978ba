"""Keeps the log small: days that nobody needs are dropped, windows that everybody has behind them are merged.

Days are made ahead, too, so that a relay alone is enough. Everything here may run in several processes at once.
"""

from __future__ import annotations

from samecommit.clock import Monotonic, monotonic
from samecommit.storage.days import drop_days, left_days
from samecommit.storage.link import AsyncLink
from samecommit.storage.roles import as_keeper

_AHEAD_DAYS, _REPLAY_DAYS = 14, 30
_TURN_SECONDS, _DAYS_SECONDS = 60.0, 3600.0


class Keeper:
    """One turn a minute; days once an hour.

    Args:
        link: a connection of its own: a day that is taken out waits for open reports.
        keep_days: how long events are kept once every destination has them.
    """

    def __init__(self, link: AsyncLink, keep_days: int, clock: Monotonic = monotonic) -> None:
        self._link, self._keep, self._clock = link, keep_days, clock
        self._days_due = float("-inf")

    async def run_once(self) -> float:
        """Merge windows, forget ended deliveries and old replays, and once an hour make and drop days."""
        await self._link.fetch("event/thin_windows")
        await self._link.fetch("event/forget_deliveries")
        await self._link.fetch("event/forget_turns")
        await self._link.fetch("replay/forget", keep=_REPLAY_DAYS)
        if self._clock() >= self._days_due:
            await self._link.fetch("chore/make_days", ahead=_AHEAD_DAYS)
            await self.drop_old_days()
            await self._link.fetch("event/drop_old_windows", keep=self._keep)
            self._days_due = self._clock() + _DAYS_SECONDS
        return _TURN_SECONDS

    async def drop_old_days(self) -> None:
        """Drop days that are past their time and behind every position."""
        old = await self._link.fetch("event/old_days", keep=self._keep)
        left = await left_days(self._link, {"event": self._keep})
        if not (old or left):
            return
        async with as_keeper(self._link):
            await drop_days(self._link, left, [("event", child, is_half_detached) for child, is_half_detached in old])
