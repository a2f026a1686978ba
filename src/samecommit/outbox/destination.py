"""A configured destination: its name, which events it gets, in which order, and what happens to those it cannot take.

============== ==================================================================================================
order          promise
============== ==================================================================================================
``none``       whatever is fastest
``key``        events of a key arrive in the order of their commits, also across failures: one at a time per key
``key_pipelined``  as ``key``, but broken when an event is refused while later ones of its key are on their way
``global``     one after another
============== ==================================================================================================

============== ==================================================================================================
poison         an event that the destination will never take, or not within ``retry_for_seconds``
============== ==================================================================================================
``skip``       is put aside as dead, the others go on (default without order)
``park_key``   is put aside as dead, and later events of its key wait behind it for a person (default with ``key``)
``halt``       stops the destination until a person has decided (default with ``global``)
============== ==================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from samecommit.errors import ConfigError
from samecommit.outbox.adapter import Adapter
from samecommit.outbox.sink import Sink

Order = Literal["none", "key", "key_pipelined", "global"]
Poison = Literal["skip", "park_key", "halt"]
Start = Literal["now", "start"]
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*\*?|\*")
_POISON: dict[Order, Poison] = {"none": "skip", "key": "park_key", "key_pipelined": "park_key", "global": "halt"}


class Matcher:
    """Which event types a destination gets: exact names, or beginnings as in ``lead.*``."""

    __slots__ = ("_known", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._known: dict[str, bool] = {}
        for pattern in self.patterns:
            if not _PATTERN.fullmatch(pattern):
                raise ConfigError(f"pattern {pattern!r} matches no event type: give a type, or its beginning and one *")
        if not self.patterns:
            raise ConfigError("a destination without patterns gets nothing: give '*' for every event")

    def __repr__(self) -> str:
        return f"Matcher({', '.join(self.patterns)})"

    def __call__(self, type_: str) -> bool:
        """Tell whether events of that type are wanted."""
        wanted = self._known.get(type_)
        if wanted is None:
            wanted = self._known[type_] = any(_matches(pattern, type_) for pattern in self.patterns)
        return wanted


def _matches(pattern: str, type_: str) -> bool:
    return type_.startswith(pattern[:-1]) if pattern.endswith("*") else type_ == pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDestination:
    """A destination that takes batches through a sink.

    Args:
        name: chosen by the user, stable for ever: positions hang on it.
        sink: its code; the first shard's.
        more_sinks: those of the other shards: a sink has one connection and one position, so each shard has its own.
        matches: which types.
        order: see the module.
        poison: see the module; None is the order's default.
        shards: into how many parts its keys are split, each with its own relay; cannot change.
        start: where a new destination begins: with what is emitted from now on, at the start of the log, or at a moment.
        retry_for_seconds: how long an event that is refused for now is tried before it counts as poison.
        send_seconds: the longest ``send``.
        lease_seconds: how long a relay may be silent before another takes its place.
    """

    name: str
    sink: Sink
    more_sinks: tuple[Sink, ...] = ()
    matches: Matcher = field(default_factory=lambda: Matcher("*"))
    order: Order = "key"
    poison: Poison | None = None
    shards: int = 1
    start: Start | datetime = "now"
    retry_for_seconds: float = 86_400.0
    send_seconds: float = 10.0
    lease_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_destination_name(self.name)
        if self.order not in _POISON or self.poison not in (None, "skip", "park_key", "halt"):
            raise ConfigError(
                f"destination {self.name!r} has order={self.order!r}, poison={self.poison!r}: see its page"
            )
        if self.poison == "park_key" and self.order not in ("key", "key_pipelined"):
            raise ConfigError(f"destination {self.name!r} parks keys but keeps no order of keys: say order='key'")
        if self.order == "global" and self.shards != 1:
            raise ConfigError(f"destination {self.name!r} has {self.shards} shards, but one order needs one")
        if len(self.more_sinks) != self.shards - 1:
            raise ConfigError(
                f"destination {self.name!r} has {self.shards} shards and {len(self.more_sinks) + 1} sinks: each shard needs its own, "
                "so give a function that makes one, as in app.stream(name, lambda: RedisStream(...), shards=4)"
            )
        if self.send_seconds * 2 > self.lease_seconds:
            raise ConfigError(
                f"destination {self.name!r} has send_seconds={self.send_seconds!r}: give at most half of its lease, "
                f"{self.lease_seconds!r} s, so that one slow send does not lose it"
            )

    def sink_of(self, shard: int) -> Sink:
        """Return the sink of one shard."""
        return (self.sink, *self.more_sinks)[shard]

    @property
    def keeps_keys(self) -> bool:
        """Whether events wait behind an earlier one of their key."""
        return self.order in ("key", "key_pipelined")

    @property
    def policy(self) -> Poison:
        """What happens to an event that is never taken."""
        return self.poison or _POISON[self.order]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDestination:
    """A destination whose events become jobs, one for each target, delivered one at a time by an adapter.

    Args:
        name: as for a stream; its jobs are of kind ``deliver:<name>``.
        adapter: its code.
        order: ``none``, or ``key``: the next delivery of a key (to one target) begins when the one before it has ended. One that
            failed or is held for a person lets the next one go.
        queue: where its jobs wait.
        max_attempts: None is the queue's default.
        timeout_seconds: the longest attempt.
        settle_seconds: how long after an attempt its effect may still be invisible to ``find_existing``.
        on_doubt: without ``find_existing``, whether a doubtful send is held for a person or sent again.
        doubt_for_seconds: how long an answer is looked for before a person decides.
    """

    name: str
    adapter: Adapter
    matches: Matcher = field(default_factory=lambda: Matcher("*"))
    order: Literal["none", "key"] = "none"
    queue: str = "default"
    max_attempts: int | None = None
    timeout_seconds: float = 60.0
    settle_seconds: float = 60.0
    on_doubt: Literal["hold", "resend"] = "hold"
    doubt_for_seconds: float = 3_600.0
    start: Start | datetime = "now"
    lease_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_destination_name(self.name)
        if self.order not in ("none", "key"):
            raise ConfigError(
                f"destination {self.name!r} has order={self.order!r}, but its events become jobs: say 'none' or 'key', or "
                "give it a sink and make it a stream"
            )

    @property
    def kind(self) -> str:
        """The kind of its jobs."""
        return f"deliver:{self.name}"

    @property
    def shards(self) -> int:
        """How many positions it has: one is enough to make jobs."""
        return 1


Destination = StreamDestination | JobDestination


def check_destination_name(name: Any) -> None:
    """Refuse a name that could not be stored.

    Raises:
        ConfigError: it is not 1 to 100 of a-z, 0-9, ``_``, ``.`` and ``-``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"destination {name!r} cannot be used: give 1 to 100 of a-z, 0-9, _ . and -")
