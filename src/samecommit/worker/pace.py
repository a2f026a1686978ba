"""When the claimer looks next, and whether it wants to be rung for.

::

    backlog   the last look filled its room                look again at once
    trickle   jobs come, and each look takes all           every 2 ms; what comes together is claimed together
    steady    a trickle that 16 looks in a row have found  the same, and the bell is given up: producers that notify with
                                                           each commit wait for one another
    idle      nothing                                      5 ms, doubled up to the poll interval, or to seconds while commits
                                                           are heard; after a steady trickle not before four empty looks,
                                                           and every 2 ms for a while until the bell is granted, since whoever
                                                           began before it was asked for commits unheard
"""

from __future__ import annotations

from typing import Protocol

from samecommit.clock import Monotonic, monotonic

_PACE_SECONDS, _FIRST_SLEEP = 0.002, 0.005
_HELD_SLEEP, _HEARD_SLEEP = 3.0, 2.0
_BUSY_ROWS = 32
_STEADY_LOOKS, _PATIENT_LOOKS, _UNHEARD_LOOKS = 16, 4, 20


class Bell(Protocol):
    """What is used of `Doorbell`."""

    @property
    def is_idle(self) -> bool: ...
    @property
    def is_held(self) -> bool: ...
    @property
    def is_heard(self) -> bool: ...
    def set_idle(self, is_idle: bool) -> None: ...


class Pace:
    """Told of every look; says how long to sleep.

    Args:
        bell: asked for while there is little to do.
        poll_seconds: the longest sleep when commits are not heard.
    """

    def __init__(self, bell: Bell, poll_seconds: float, clock: Monotonic = monotonic) -> None:
        self._bell, self._poll_seconds, self._clock = bell, poll_seconds, clock
        self._found_looks = self._empty_looks = self._idle_looks = 0
        self._rest_until = -1e9

    def __repr__(self) -> str:
        return f"<Pace {self._found_looks} looks with jobs, {self._empty_looks} without>"

    @property
    def is_idle(self) -> bool:
        """Whether the last look found nothing."""
        return self._empty_looks > 0

    def rest(self) -> float:
        """Return the seconds that a bell may not cut short."""
        return self._rest_until - self._clock()

    def full(self) -> None:
        """Note that there is no room to claim anything."""
        self._bell.set_idle(False)

    def after(self, count: int, room: int) -> float:
        """Return how long to sleep after a look that found ``count`` jobs where ``room`` were wanted."""
        if not count:
            return self._after_nothing()
        self._found_looks += 1
        self._empty_looks = self._idle_looks = 0
        if count >= min(room, _BUSY_ROWS):
            self._bell.set_idle(False)
            return 0.0
        if self._found_looks >= _STEADY_LOOKS:
            self._bell.set_idle(False)
        self._rest_until = self._clock() + _PACE_SECONDS
        return _PACE_SECONDS

    def _after_nothing(self) -> float:
        self._found_looks = 0
        self._empty_looks += 1
        if not self._bell.is_idle and self._empty_looks < _PATIENT_LOOKS:
            return _PACE_SECONDS
        self._bell.set_idle(True)
        if not self._bell.is_held and self._empty_looks < _UNHEARD_LOOKS:
            return _PACE_SECONDS
        self._idle_looks += 1
        longest = self._poll_seconds
        if self._bell.is_heard:
            longest = max(longest, _HELD_SLEEP if self._bell.is_held else _HEARD_SLEEP)
        return min(_FIRST_SLEEP * 2.0 ** min(self._idle_looks - 1, 12), longest)
