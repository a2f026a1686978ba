"""What became of one event at one destination, as values.

====================  ===================================================  ==========================================
value                 meaning                                              the relay
====================  ===================================================  ==========================================
``Delivered``         the destination has it                               goes on
``Duplicate``         the destination had it already                       goes on
``Rejected``          it will never take this event                        follows the poison policy
``Retry``             it did not take this event now                       puts the event aside, tries again
``Throttled``         it is too busy: nothing more for now                 stops the destination, then probes
``DestinationDown``   it cannot be reached: nothing was taken              stops the destination, then probes
``Doubt``             sent, and nobody knows whether it arrived            reads back where it can, before it sends again
====================  ===================================================  ==========================================

``detail`` is kept with the attempt (a response's status, a coordinate): small, JSON, without secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination has the event; ``ref`` is what it calls it (an offset, a stream id, a record's id)."""

    ref: str | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The destination says that it had the event already: a success."""

    ref: str | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """It is the event's own fault and will not change: too large, not routable, refused by a rule."""

    reason: str
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """This event was certainly not taken, but may be later (after so many seconds)."""

    reason: str
    after: float | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Throttled:
    """The destination refuses for now, for so many seconds if it says so; this event was certainly not taken."""

    after: float | None = None
    reason: str = "throttled"
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DestinationDown:
    """The destination cannot be reached or used; this event was certainly not taken."""

    reason: str
    after: float | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """The event was sent and no answer came: it may have arrived or not."""

    reason: str
    detail: Mapping[str, Any] | None = None


Outcome: TypeAlias = Delivered | Duplicate | Rejected | Retry | Throttled | DestinationDown | Doubt


@dataclass(frozen=True, slots=True)
class Found:
    """A look into the destination found the event; ``ref`` is what it calls it."""

    ref: str | None = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """The destination certainly does not have the event; believed once the settle time has passed."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """The look said nothing: look again later."""

    reason: str = "unsure"


Lookup: TypeAlias = Found | NotFound | Unsure
