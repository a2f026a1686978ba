"""Days of history: made ahead, dropped when they are past their class. Never a mass DELETE, never a strong lock for long."""

from __future__ import annotations

from samecommit.config import WorkerConfig
from samecommit.storage.days import drop_day, drop_left_days, left_days
from samecommit.storage.link import AsyncLink
from samecommit.storage.roles import as_keeper

_AHEAD_DAYS = 14
_HOUR = 3600.0


class Retention:
    """Makes and drops day partitions."""

    def __init__(self, link: AsyncLink, config: WorkerConfig) -> None:
        self._link, self._config = link, config

    def keep_days(self) -> dict[str, int]:
        """Return how many days each partitioned table keeps."""
        short, default, long = self._config.retention_days
        longest = max(short, default, long)
        return {
            "job_history_1": short,
            "job_history_2": default,
            "job_history_3": long,
            "attempt": longest,
            "body": longest + self._config.failed_age_days,  # what failed enters the history that late
        }

    async def run(self) -> float:
        """Make the days ahead and drop those past their time; one turn."""
        await self._link.fetch("chore/make_days", ahead=_AHEAD_DAYS)
        keep = self.keep_days()
        old = await self._link.fetch("chore/old_days", parents=list(keep), days=list(keep.values()))
        left = await left_days(self._link, keep)
        if old or left:
            async with as_keeper(self._link):
                await drop_left_days(self._link, left)
                for parent, child, is_pending in old:
                    await drop_day(self._link, parent, child, is_half_detached=is_pending)
        return _HOUR
