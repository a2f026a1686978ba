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

They are exceptions so that code deep inside a handler can end the attempt: ``raise Hold("looks like a duplicate")``.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias


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


def _seconds(after: float | timedelta | None) -> float | None:
    return after.total_seconds() if isinstance(after, timedelta) else after


class Done(Outcome):
    """The work is done; the result is kept with the job's history."""

    __slots__ = ("result",)

    def __init__(self, result: Any = None) -> None:
        self.result = result


class Retry(Outcome):
    """Try again, after so many seconds (None: the task's back-off)."""

    __slots__ = ("after", "reason")

    def __init__(self, after: float | timedelta | None = None, reason: str | None = None) -> None:
        self.after, self.reason = _seconds(after), reason


class Snooze(Outcome):
    """Look again later: an aware datetime, a timedelta or seconds."""

    __slots__ = ("reason", "until")

    def __init__(self, until: datetime | timedelta | float, reason: str | None = None) -> None:
        self.until = until.total_seconds() if isinstance(until, timedelta) else until
        self.reason = reason


class RateLimited(Outcome):
    """The dependency refuses for now: nobody starts this kind for so many seconds."""

    __slots__ = ("after", "reason")

    def __init__(self, after: float | timedelta, reason: str | None = None) -> None:
        self.after = _seconds(after) or 0.0
        self.reason = reason


class Hold(Outcome):
    """A person decides: the job waits, with what they need to see, until it is released, cancelled or its date passes."""

    __slots__ = ("data", "reason", "until")

    def __init__(self, reason: str, data: Any = None, until: datetime | None = None) -> None:
        self.reason, self.data, self.until = reason, data, until


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
