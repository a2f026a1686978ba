"""The lease of one position, and its fence: every write of a relay is refused once another relay holds it."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from typing import Any, NamedTuple

from samecommit.clock import Monotonic
from samecommit.outbox.log import Place, SharedLink, WindowGone
from samecommit.storage.link import Row


class PositionLost(Exception):
    """Another relay holds the position now, its destination was removed, or the database does not know of what we have read."""


class Taken(NamedTuple):
    """A position that was taken: whether the last holder left it clean, and how long it had stood where it was.

    Args:
        at: when, by the database's clock.
        since_move: seconds from its last move until then.
        clock: when, by this process's.
    """

    is_clean: bool
    at: datetime
    since_move: float
    clock: float


class Hold:
    """One position of one destination.

    Args:
        holder: this process, a random number.
        lease_seconds: how long it lasts without a move.
        clock: for how long it certainly still lasts, measured from before each write.
    """

    def __init__(
        self, link: SharedLink, destination: str, shard: int, holder: int, lease_seconds: float, clock: Monotonic
    ) -> None:
        self._link, self._holder, self._seconds, self._clock = link, holder, lease_seconds, clock
        self._whose: dict[str, Any] = {"destination": destination, "shard": shard}
        self._ends = self._renewed = 0.0
        self._fence: int | None = None
        self.place = self.taken = Place(0, 0)
        self.is_paused = self.has_replay = False

    def __repr__(self) -> str:
        return f"<Hold {self._whose} fence {self._fence} at {self.place}>"

    @property
    def is_held(self) -> bool:
        """Whether this relay believes that it holds the position."""
        return self._fence is not None

    def lasts(self, seconds: float) -> bool:
        """Whether the lease certainly lasts that long."""
        return self._clock() + seconds < self._ends

    @property
    def is_old(self) -> bool:
        """Whether it is time to renew."""
        return self._clock() - self._renewed > self._seconds / 3

    def make_old(self) -> None:
        """Ask for a renewal at the next turn, which also tells of a pause."""
        self._renewed = float("-inf")

    async def take(self) -> Taken | None:
        """Take the position; None when it is not free."""
        began = self._clock()
        rows = await self._link.fetch(
            "event/take",
            **self._whose,
            holder=self._holder,
            holder_name=f"pid {os.getpid()} on {socket.gethostname()}",
            lease_seconds=self._seconds,
        )
        if not rows:
            return None
        self._fence, window_n, after, is_clean, at, since_move, self.has_replay = rows[0]
        self.place = self.taken = Place(window_n, after)
        self.is_paused = False
        self._renewed, self._ends = began, began + self._seconds
        return Taken(is_clean, at, since_move, began)

    async def move(self, place: Place, seen_n: int, label: str = "event/move", **columns: Any) -> None:
        """Write how far the destination is and what goes with that, and renew the lease; `seen_n` is the last window read.

        Raises:
            PositionLost: the fence is not ours any more, the position is not where we know it to be, or that window is not
                there; nothing was written.
        """
        began = self._clock()
        rows = await self._link.fetch(
            label,
            **self._whose,
            fence=self._fence,
            from_n=self.place.window_n,
            from_after=self.place.after,
            seen_n=seen_n,
            window_n=place.window_n,
            after=place.after,
            lease_seconds=self._seconds,
            **columns,
        )
        if not rows:
            self._fence = None
            raise PositionLost
        self.place = place
        self.is_paused, self.has_replay = rows[0][:2]
        self._renewed, self._ends = began, began + self._seconds

    async def write(self, label: str, **columns: Any) -> Row:
        """Run another fenced statement of this position; its row.

        Raises:
            PositionLost: the fence is not ours any more; nothing was written.
        """
        rows = await self._link.fetch(label, **self._whose, fence=self._fence, **columns)
        if not rows:
            self._fence = None
            raise PositionLost
        return rows[0]

    def lose(self, gone: WindowGone) -> None:
        """Forget the position, since a window is gone that was there: it is taken again, from where the database has it.

        Raises:
            WindowGone: that is where the database had it, not long ago.
        """
        if gone.n == self.taken.window_n and not self.is_old:
            raise gone
        self._fence = None

    async def give_up(self, *, is_clean: bool) -> None:
        """Let somebody else take the position at once."""
        fence, self._fence = self._fence, None
        if fence is not None:
            await self._link.fetch("event/give_up", **self._whose, fence=fence, is_clean=is_clean)
