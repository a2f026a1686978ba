"""What happened, told to whoever listens: typed values, past participles, no strings to parse.

The core logs nothing. ``signals.subscribe(listener)`` hears everything; a listener that raises is dropped with a warning
on the standard error stream and never harms the work.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import msgspec


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all signals."""


class WorkerStarted(Signal, frozen=True, kw_only=True):
    """A worker has its lease and begins to claim."""

    lease_id: int
    queues: tuple[str, ...] | None
    kinds: tuple[str, ...]


class WorkerStopped(Signal, frozen=True, kw_only=True):
    """A worker has ended; ``given_back`` jobs were returned to the line without spending an attempt."""

    lease_id: int
    given_back: int


class CopyFound(Signal, frozen=True, kw_only=True):
    """The database is a copy of the installation's home: nothing is done in it until it is adopted."""

    reason: str


class LeaseWasLost(Signal, frozen=True, kw_only=True):
    """The lease ran out or was taken: everything that ran was stopped."""

    lease_id: int
    running: int
    reason: str


class JobsClaimed(Signal, frozen=True, kw_only=True):
    """One claim brought so many jobs."""

    count: int


class JobsEnded(Signal, frozen=True, kw_only=True):
    """One write ended so many attempts; ``refused`` were fenced off, because somebody else owns them now."""

    done: int
    settled: int
    refused: int


class JobFailed(Signal, frozen=True, kw_only=True):
    """An attempt ended badly."""

    job_id: int
    kind: str
    attempts: int
    will_retry: bool
    error: str


class HandlerAbandoned(Signal, frozen=True, kw_only=True):
    """A handler has not stopped when told (``reason``: timeout, cancel, shutdown): its job goes on without it."""

    job_id: int
    kind: str
    reason: str
    stuck_threads: int


class WorkerWornOut(Signal, frozen=True, kw_only=True):
    """Every thread hangs in a handler, the spare ones too: the worker stops, so that another takes its place."""

    stuck_threads: int


class LeasesReaped(Signal, frozen=True, kw_only=True):
    """Jobs of dead leases were given back; ``held`` of them after too many lone crashes."""

    leases: int
    jobs: int
    held: int


class ServiceFailed(Signal, frozen=True, kw_only=True):
    """A loop's turn failed; it goes on after ``retry_seconds``."""

    service: str
    error: str
    retry_seconds: float


class ServiceRecovered(Signal, frozen=True, kw_only=True):
    """A loop works again after so many failed turns."""

    service: str
    failures: int


class PolicyBroken(Signal, frozen=True, kw_only=True):
    """A user's retry policy answered nonsense; the default was used."""

    kind: str
    complaint: str


Listener = Callable[[Signal], None]


class Signals:
    """Where signals go: any number of listeners, called in order, in the emitter's thread."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

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
