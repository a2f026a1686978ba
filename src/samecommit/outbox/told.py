"""What the relay tells (see `samecommit.signals`)."""

from __future__ import annotations

from samecommit.signals import Signal


class RelayStarted(Signal, frozen=True, kw_only=True):
    """A relay holds a position and begins to send; ``is_clean`` is False when the one before it was cut off."""

    destination: str
    shard: int
    is_clean: bool


class RelayStopped(Signal, frozen=True, kw_only=True):
    """A relay let go of its position, or lost it."""

    destination: str
    shard: int
    reason: str


class EventsDelivered(Signal, frozen=True, kw_only=True):
    """So many events are written down as delivered; ``repeated`` of them the destination had already."""

    destination: str
    shard: int
    count: int
    repeated: int


class EventParked(Signal, frozen=True, kw_only=True):
    """An event was put aside: ``due`` is tried again, ``dead`` and ``decision`` wait for a person."""

    destination: str
    number: int
    key: str | None
    state: str
    reason: str


class DestinationStopped(Signal, frozen=True, kw_only=True):
    """Nothing is sent for so many seconds, then one event is tried."""

    destination: str
    shard: int
    state: str
    reason: str
    retry_seconds: float


class DestinationRecovered(Signal, frozen=True, kw_only=True):
    """A destination takes events again."""

    destination: str
    shard: int


class RepeatPossible(Signal, frozen=True, kw_only=True):
    """Events are sent again though nobody knows whether they had arrived: the receiver may see them twice."""

    destination: str
    count: int
    reason: str


class ReplayEnded(Signal, frozen=True, kw_only=True):
    """A replay has sent again what was asked for, as far as this shard goes, or was cancelled."""

    destination: str
    shard: int
    replay: int
    is_cancelled: bool


class EventsExpanded(Signal, frozen=True, kw_only=True):
    """So many jobs were made of events, with the position moved in the same transaction."""

    destination: str
    jobs: int
