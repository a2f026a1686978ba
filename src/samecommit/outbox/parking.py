"""What is put aside: events that could not go straight through, and the keys that wait behind them.

One relay owns a position with everything that is parked there, so that blocking and freeing a key has no race. This is the
memory of it; `Parked` is what the next move of the position writes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from samecommit.event import StoredEvent
from samecommit.outbox.destination import StreamDestination

_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """One event to be put aside, as a row."""

    event: StoredEvent
    state: str
    blocks: bool
    attempts: int
    delay: float = 0.0
    is_doubtful: bool = False
    error: str | None = None


class Due(NamedTuple):
    """A parked event whose turn it is: whether its last attempt is in doubt, and for how long it has been parked."""

    event: StoredEvent
    state: str
    is_doubtful: bool
    age_seconds: float


@dataclass(slots=True)
class Parking:
    """What is parked of one position.

    Args:
        destination: whose policy counts.
    """

    destination: StreamDestination
    blocked_keys: set[str] = field(default_factory=set[str])
    is_halted: bool = False
    count: int = 0
    changes: list[Parked] = field(default_factory=list["Parked"])
    gone: list[int] = field(default_factory=list[int])
    freed_keys: list[str] = field(default_factory=list[str])

    def load(self, rows: Iterable[tuple[Any, ...]]) -> float | None:
        """Take up what the database holds (``event/parked``); the seconds to the first that is due, None without one."""
        self.blocked_keys, self.is_halted, self.count = set(), False, 0
        due: list[float] = []
        for key, state, blocks, count, seconds in rows:
            self.count += count
            self.is_halted |= self._halts(state)
            if blocks:
                self.blocked_keys.add(key)
            if seconds is not None:
                due.append(seconds)
        return min(due, default=None)

    def _halts(self, state: str) -> bool:
        if state in ("dead", "decision", "settled"):
            return self.destination.policy == "halt"
        return self.destination.order == "global"

    def forget(self) -> None:
        """Drop what was not written: the position is lost."""
        self.changes, self.gone, self.freed_keys = [], [], []

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to write."""
        return bool(self.changes or self.gone)

    def holds_up(self, event: StoredEvent) -> bool:
        """Tell whether an event must wait behind another of its key."""
        return event.key is not None and event.key in self.blocked_keys

    def wait(self, event: StoredEvent, *, is_doubtful: bool = False) -> None:
        """Put an event behind the parked one of its key."""
        self._put(Parked(event=event, state="waiting", blocks=True, attempts=0, is_doubtful=is_doubtful))

    def put_aside(
        self,
        event: StoredEvent,
        reason: str,
        *,
        after: float | None,
        is_doubtful: bool = False,
        age_seconds: float = 0.0,
    ) -> str:
        """Park an event that may be taken later; as poison when it has been tried for too long. The state it gets."""
        if age_seconds > self.destination.retry_for_seconds:
            return self.bury(event, f"not taken within {self.destination.retry_for_seconds:g} s: {reason}")
        delay = backoff(event.attempt) if after is None else after
        self._put(
            Parked(
                event=event,
                state="due",
                blocks=self._is_keyed(event),
                attempts=event.attempt,
                delay=delay,
                is_doubtful=is_doubtful,
                error=reason,
            )
        )
        return "due"

    def bury(self, event: StoredEvent, reason: str, state: str = "dead") -> str:
        """Park an event for a person."""
        blocks = self._is_keyed(event) and self.destination.policy != "skip"
        self._put(Parked(event=event, state=state, blocks=blocks, attempts=event.attempt, error=reason))
        if event.key is not None and not blocks:
            self._free(event.key)
        return state

    def done(self, event: StoredEvent) -> None:
        """Remove a parked event that has been delivered or settled."""
        self.gone.append(event.number)
        if event.key is not None:
            self._free(event.key)

    def _is_keyed(self, event: StoredEvent) -> bool:
        return self.destination.keeps_keys and event.key is not None

    def _free(self, key: str) -> None:
        if key in self.blocked_keys:
            self.freed_keys.append(key)

    def _put(self, parked: Parked) -> None:
        self.changes.append(parked)
        self.count += 1
        self.is_halted |= self._halts(parked.state)
        if parked.blocks and parked.event.key is not None:
            self.blocked_keys.add(parked.event.key)

    def columns(self) -> dict[str, Any]:
        """Return what is to be written, as ``event/move`` takes it; the last word on each event counts."""
        rows = list({parked.event.number: parked for parked in self.changes}.values())
        return {
            "gone": self.gone,
            "freed_keys": sorted(set(self.freed_keys)),
            "numbers": [row.event.number for row in rows],
            "created_ats": [row.event.time for row in rows],
            "lanes": [row.event.lane for row in rows],
            "keys": [row.event.key for row in rows],
            "blocks": [row.blocks for row in rows],
            "states": [row.state for row in rows],
            "attempts": [row.attempts for row in rows],
            "delays": [row.delay for row in rows],
            "doubts": [row.is_doubtful for row in rows],
            "errors": [row.error for row in rows],
        }


def backoff(attempt: int, first: float = _FIRST_SECONDS, longest: float = _LONGEST_SECONDS) -> float:
    """Return the pause after so many attempts, with jitter."""
    return min(first * 2.0 ** min(attempt - 1, 20), longest) * (0.5 + random.random() / 2)
