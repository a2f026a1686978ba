"""What may be done to a run, by name. A fate is a generator: it hurts, yields the seconds until it goes on, and heals at its end.

What comes before its first yield is the injection; a fate that finds nothing to hurt returns before, and counts for
nothing. What it returns is how often its effect was seen: a kind that was injected and never seen fails the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tests.support.history import Line

if TYPE_CHECKING:
    from tests.faults.storm import Storm

Steps: TypeAlias = Generator[float, None, int]
Play: TypeAlias = Callable[["Storm", Line], Steps]


@dataclass(frozen=True, slots=True)
class Fate:
    """One kind of fault.

    Args:
        alone: no two that share this word happen at once.
        is_rare: it comes once in a period, as what stops everything for seconds should.
    """

    name: str
    play: Play
    alone: str
    is_rare: bool


FATES: dict[str, Fate] = {}


def fate(name: str, *, alone: str = "", is_rare: bool = False) -> Callable[[Play], Play]:
    """Give a generator its name; its second argument is its line in the history of faults, to add to."""

    def add(play: Play) -> Play:
        FATES[name] = Fate(name, play, alone, is_rare)
        return play

    return add


class Mix:
    """Which kinds may come: a new set every while, one period in four is quiet, and each kind comes before any comes again.

    Args:
        period: seconds, from and to.
        size: kinds in a set, from and to.
        quiet: whether there are quiet periods; the first is none.
    """

    def __init__(
        self,
        rng: random.Random,
        kinds: Sequence[str],
        period: tuple[float, float],
        size: tuple[int, int],
        *,
        quiet: bool,
    ) -> None:
        self._rng, self._kinds, self._period, self._size, self._is_quiet = rng, tuple(kinds), period, size, quiet
        self._deck: list[str] = []
        self._block: list[bool] = []
        self._set: list[str] = []
        self._hand: list[str] = []
        self._waiting: set[str] = set()
        self._ends_at = 0.0
        self.quiet: list[tuple[float, float]] = []

    def draw(self, now: float) -> str | None:
        """Return what comes now (seconds since the first); None while it is quiet."""
        if now >= self._ends_at:
            self._turn(now)
        if not self._hand:
            again = [kind for kind in self._set if not FATES[kind].is_rare or kind in self._waiting] or self._set
            self._hand = self._rng.sample(again, len(again))
        return self._hand.pop() if self._hand else None

    def played(self, kind: str) -> None:
        """Say that it could be done; a kind that could not comes again soon."""
        self._waiting.discard(kind)

    def _turn(self, now: float) -> None:
        self._deck += sorted(self._waiting)
        self._waiting = set()
        seconds = self._rng.uniform(*self._period)
        self._ends_at = now + seconds
        self._hand = []
        if self._is_quiet and not self._block:
            at = self._rng.randrange(1, 4)
            self._block = [n == at for n in range(4)]
        if self._is_quiet and self._block.pop(0):
            self._set = []
            self.quiet.append((now, now + seconds))
            return
        self._set = [self._card() for _ in range(min(self._rng.randint(*self._size), len(self._kinds)))]
        self._waiting = set(self._set)

    def _card(self) -> str:
        if not self._deck:
            self._deck = self._rng.sample(self._kinds, len(self._kinds))
        return self._deck.pop()
