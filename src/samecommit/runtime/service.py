"""A loop with a name: it runs one turn, sleeps as long as the turn says, backs off when a turn fails, and always stops.

A service is a function ``run_once() -> next delay in seconds``. Nothing a turn raises ends the loop: it is told as
`ServiceFailed`, and the next turn comes after a growing pause (50 ms to 5 s, with jitter).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from samecommit.signals import ServiceFailed, ServiceRecovered, Signals

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


class Companion(Protocol):
    """What runs beside a worker: it begins after the worker, and ends after the worker's last handler."""

    async def start(self, lease: Callable[[], int | None], /) -> None: ...
    async def finish(self) -> None: ...


class Service:
    """Runs ``run_once`` again and again in a task of its own.

    Args:
        name: shown in signals.
        run_once: one turn; returns how long to sleep. `wake` cuts a sleep short.
        signals: where failures are told.
    """

    def __init__(self, name: str, run_once: Callable[[], Awaitable[float]], signals: Signals) -> None:
        self.name = name
        self._run_once = run_once
        self._signals = signals
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.failures = 0

    def __repr__(self) -> str:
        return f"<Service {self.name!r} failures={self.failures}>"

    def start(self) -> None:
        """Begin the loop."""
        self._task = asyncio.create_task(self._loop(), name=f"samecommit {self.name}")

    def wake(self) -> None:
        """End the current sleep."""
        self._woken.set()

    async def stop(self, timeout_seconds: float = 5.0) -> None:
        """End the loop after its turn, or cancel the turn when it takes longer. Safe to repeat."""
        self._stopping = True
        self._woken.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=timeout_seconds)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=timeout_seconds)

    async def _loop(self) -> None:
        while not self._stopping:
            self._woken.clear()
            delay = await self._turn()
            if delay > 0 and not self._stopping:
                await self.sleep(delay)

    async def sleep(self, seconds: float) -> None:
        """Sleep, or less when woken."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _turn(self) -> float:
        try:
            delay = await self._run_once()
        except asyncio.CancelledError:
            if not self._stopping:
                return self._failed("the turn was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - the loop must outlive any turn
            return self._failed(f"{type(error).__name__}: {error}")
        if self.failures:
            self._signals.emit(ServiceRecovered(service=self.name, failures=self.failures))
            self.failures = 0
        return delay

    def _failed(self, error: str) -> float:
        pause = min(_FIRST_PAUSE * 2.0 ** min(self.failures, 10), _LONGEST_PAUSE) * (0.5 + random.random() / 2)
        self.failures += 1
        self._signals.emit(ServiceFailed(service=self.name, error=error, retry_seconds=pause))
        return pause
