"""What happened, told to whoever listens: typed values, past participles, no strings to parse.

The core logs nothing. ``signals.subscribe(listener)`` hears everything; a listener that raises is dropped with a warning
on the standard error stream and never harms the work. `samecommit.observability` turns signals into logs and metrics.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """The root of all signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Signal):
    """A worker has its lease and begins to claim."""

    lease_id: int
    queues: tuple[str, ...] | None
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Signal):
    """A worker has ended; ``given_back`` jobs were returned to the line without spending an attempt."""

    lease_id: int
    given_back: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFound(Signal):
    """The database is a copy of the installation's home: nothing is done in it until it is adopted."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWasLost(Signal):
    """The lease ran out or was taken: everything that ran was stopped."""

    lease_id: int
    running: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsClaimed(Signal):
    """One claim brought so many jobs."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsEnded(Signal):
    """One write ended so many attempts; ``refused`` were fenced off, because somebody else owns them now."""

    done: int
    settled: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(Signal):
    """An attempt ended badly."""

    job_id: int
    kind: str
    attempts: int
    will_retry: bool
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAbandoned(Signal):
    """A handler has not stopped when told (``reason``: timeout, cancel, shutdown): its job goes on without it."""

    job_id: int
    kind: str
    reason: str
    stuck_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWornOut(Signal):
    """Every thread hangs in a handler, the spare ones too: the worker stops, so that another takes its place."""

    stuck_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesReaped(Signal):
    """Jobs of dead leases were given back; ``held`` of them after too many lone crashes."""

    leases: int
    jobs: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFailed(Signal):
    """A loop's turn failed; it goes on after ``retry_seconds``."""

    service: str
    error: str
    retry_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecovered(Signal):
    """A loop works again after so many failed turns."""

    service: str
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBroken(Signal):
    """A user's retry policy answered nonsense; the default was used."""

    kind: str
    complaint: str


Listener = Callable[[Signal], None]


@dataclass(slots=True)
class Signals:
    """Where signals go: any number of listeners, called in order, in the emitter's thread."""

    listeners: list[Listener] = field(default_factory=list[Listener])

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener and return what removes it."""
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener) if listener in self.listeners else None

    def emit(self, signal: Signal) -> None:
        """Tell every listener."""
        for listener in tuple(self.listeners):
            try:
                listener(signal)
            except Exception:  # noqa: BLE001 - a broken listener must not stop the work that it watches
                self.listeners.remove(listener)
                print(f"samecommit: signal listener {listener!r} was dropped:", file=sys.stderr)  # noqa: T201 - the only way that is always there
                traceback.print_exc()
