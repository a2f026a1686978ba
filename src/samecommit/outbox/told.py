"""What the relay tells (see `samecommit.signals`)."""

from __future__ import annotations

from dataclasses import dataclass

from samecommit.signals import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayStarted(Signal):
    """A relay holds a position and begins to send; ``is_clean`` is False when the one before it was cut off."""

    destination: str
    shard: int
    is_clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayStopped(Signal):
    """A relay let go of its position, or lost it."""

    destination: str
    shard: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsDelivered(Signal):
    """So many events are written down as delivered; ``repeated`` of them the destination had already."""

    destination: str
    shard: int
    count: int
    repeated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventParked(Signal):
    """An event was put aside: ``due`` is tried again, ``dead`` and ``decision`` wait for a person."""

    destination: str
    number: int
    key: str | None
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStopped(Signal):
    """Nothing is sent for so many seconds, then one event is tried."""

    destination: str
    shard: int
    state: str
    reason: str
    retry_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationRecovered(Signal):
    """A destination takes events again."""

    destination: str
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatPossible(Signal):
    """Events are sent again though nobody knows whether they had arrived: the receiver may see them twice."""

    destination: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEnded(Signal):
    """A replay has sent again what was asked for, as far as this shard goes, or was cancelled."""

    destination: str
    shard: int
    replay: int
    is_cancelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsExpanded(Signal):
    """So many jobs were made of events, with the position moved in the same transaction."""

    destination: str
    jobs: int
