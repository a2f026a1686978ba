"""Days of history: made ahead, dropped when they are past their class. Never a mass DELETE, never a strong lock for long."""

from __future__ import annotations

from datetime import datetime

from samecommit.config import WorkerConfig
from samecommit.storage.days import drop_days, left_days
from samecommit.storage.link import AsyncLink
from samecommit.storage.roles import as_keeper

_AHEAD_DAYS = 14
_HOUR = 3600.0
_FIRST_ID, _ROOM = -(2**63), 10_000


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
        old = await self._old_days(keep)
        left = await left_days(self._link, keep)
        if old or left:
            async with as_keeper(self._link):
                await drop_days(self._link, left, old)
        return _HOUR

    async def _old_days(self, keep: dict[str, int]) -> list[tuple[str, str, bool]]:
        old = await self._link.fetch("chore/old_days", parents=list(keep), days=list(keep.values()))
        ends = [end for *_, end in old if end is not None]
        oldest = await self._oldest_job(min(ends)) if ends else None
        return [
            (parent, child, is_half_detached)
            for parent, child, is_half_detached, end in old
            if end is None or oldest is None or end <= oldest
        ]

    async def _oldest_job(self, enough: datetime) -> datetime | None:
        """Return when the oldest live job was enqueued, or the first one that is found from before ``enough``."""
        oldest, after = None, _FIRST_ID
        while oldest is None or oldest >= enough:
            found, after = (await self._link.fetch("chore/oldest_job", after=after, room=_ROOM))[0]
            if found is None:
                break
            oldest = found if oldest is None else min(oldest, found)
        return oldest
