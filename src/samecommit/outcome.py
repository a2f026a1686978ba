"""How an attempt ends, as values: return one from a handler, or raise one; any other return value is `Done` with it.

========================  =====================  ===================================================
value                     job becomes            spends an attempt
========================  =====================  ===================================================
``Done(result)``          done                   no
``Retry(after, reason)``  ready, later           yes; at ``max_attempts`` the job fails instead
``Snooze(until)``         ready, later           no
``RateLimited(after)``    ready, later           no; the kind cools down for every worker
``Hold(reason, data)``    held for a person      no
``Fail(reason)``          failed                 yes; no retry
``Cancel(reason)``        cancelled              no
========================  =====================  ===================================================

They are exceptions so that code deep inside a handler can end the attempt: ``raise Hold("looks like a duplicate")``. Raised in
an ``asyncio.TaskGroup`` one arrives in an ``ExceptionGroup`` and counts all the same, also beside errors of other tasks, which
the group has stopped for it. Of several of one kind the first counts; groups with different kinds are errors like any other.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from samecommit.errors import ConfigError
from samecommit.retry import MAX_DELAY_SECONDS


class Outcome(Exception):
    """The root of the values; not an error. Catching ``Exception`` around a ``raise Hold(...)`` catches it too."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and type(self) is type(other) and _fields(self) == _fields(other)

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in _fields(self).items() if value is not None)
        return f"{type(self).__name__}({shown})"

    __str__ = __repr__


def _fields(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in type(outcome).__slots__}


def _seconds(name: str, after: Any) -> float:
    """Return seconds from 0 to ten years; what is no number is refused here, where the handler's line is in the traceback."""
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or math.isnan(seconds):
        msg = f"{name} is {after!r}: give seconds or a timedelta"
        raise ConfigError(msg)
    return float(min(max(seconds, 0.0), MAX_DELAY_SECONDS))


def _moment(name: str, value: datetime) -> datetime:
    if value.tzinfo is None:
        msg = f"{name} is {value!r}: give a datetime with a time zone"
        raise ConfigError(msg)
    # a class of some library's own could not be sent from a child process to its worker
    return value if type(value) is datetime else datetime.combine(value.date(), value.timetz())


class Done(Outcome):
    """The work is done; the result is kept with the job's history."""

    __slots__ = ("result",)

    def __init__(self, result: Any = None) -> None:
        self.result = result


class Retry(Outcome):
    """Try again, after so many seconds (None: the task's back-off)."""

    __slots__ = ("after", "reason")

    def __init__(self, after: float | timedelta | None = None, reason: str | None = None) -> None:
        self.after = None if after is None else _seconds("after", after)
        self.reason = reason


class Snooze(Outcome):
    """Look again later: an aware datetime, a timedelta or seconds."""

    __slots__ = ("reason", "until")

    def __init__(self, until: datetime | timedelta | float, reason: str | None = None) -> None:
        self.until = _moment("until", until) if isinstance(until, datetime) else _seconds("until", until)
        self.reason = reason


class RateLimited(Outcome):
    """The dependency refuses for now: nobody starts this kind for so many seconds."""

    __slots__ = ("after", "reason")

    def __init__(self, after: float | timedelta, reason: str | None = None) -> None:
        self.after = _seconds("after", after)
        self.reason = reason


class Hold(Outcome):
    """A person decides: the job waits, with what they need to see, until it is released, cancelled or its date passes."""

    __slots__ = ("data", "reason", "until")

    def __init__(self, reason: str, data: Any = None, until: datetime | None = None) -> None:
        self.reason, self.data = reason, data
        self.until = None if until is None else _moment("until", until)


class Fail(Outcome):
    """Trying again cannot help."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Cancel(Outcome):
    """The work is not wanted any more."""

    __slots__ = ("reason",)

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason


AnyOutcome: TypeAlias = Done | Retry | Snooze | RateLimited | Hold | Fail | Cancel
