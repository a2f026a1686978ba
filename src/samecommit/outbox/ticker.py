"""Makes windows of what has become visible, and wakes the relays.

Any number of tickers may run: a window is made by whoever is first. While events come, one window every 20 ms; after a while
without any, the ticker asks for the outbox's bell (see `samecommit.runtime.doorbell`) and sleeps until an emitter rings.
"""

from __future__ import annotations

from collections.abc import Callable

from samecommit.clock import Monotonic, monotonic
from samecommit.outbox.log import Log, SharedLink
from samecommit.storage.link import AsyncLink, LinkBusy

_BUSY_SECONDS, _CALM_SECONDS = 0.02, 0.2
_FIRST_POLL_SECONDS, _BELL_POLL_SECONDS = 0.005, 2.0


class Ticker:
    """One turn makes at most one window.

    Args:
        patient: a link of its own for a window that takes longer to count than a statement may: tens of millions of events,
            after a long time without a relay. It is closed after use.
        log: told of the newest window.
        on_window: called when there is a new one.
        set_idle: asks for the bell, or gives it up.
        is_heard: whether the bell is held, so that nothing is missed while sleeping.
        poll_seconds: the longest sleep without the bell.
    """

    def __init__(
        self,
        link: SharedLink,
        patient: AsyncLink,
        log: Log,
        *,
        on_window: Callable[[], None],
        set_idle: Callable[[bool], None],
        is_heard: Callable[[], bool],
        poll_seconds: float = 0.5,
        clock: Monotonic = monotonic,
    ) -> None:
        self._link, self._patient, self._log, self._on_window = link, patient, log, on_window
        self._set_idle, self._is_heard, self._poll_seconds, self._clock = set_idle, is_heard, poll_seconds, clock
        self._last_window, self._pause = clock(), _FIRST_POLL_SECONDS

    async def run_once(self) -> float:
        """Make a window if there is something for it; the delay until the next look."""
        newest = await self._make_window()
        if newest > self._log.newest_n:
            self._log.newest_n = newest
            self._last_window, self._pause = self._clock(), _FIRST_POLL_SECONDS
            self._set_idle(False)
            self._on_window()
            return _BUSY_SECONDS
        if self._clock() - self._last_window < _CALM_SECONDS:
            return _BUSY_SECONDS
        self._set_idle(True)
        self._pause = min(self._pause * 2, self._poll_seconds)
        return _BELL_POLL_SECONDS if self._is_heard() else self._pause

    async def _make_window(self) -> int:
        try:
            return int((await self._link.fetch("event/make_window"))[0][0])
        except LinkBusy:
            try:
                return int((await self._patient.fetch("event/make_window"))[0][0])
            finally:
                await self._patient.close()
