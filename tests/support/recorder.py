"""Hears an application's signals, and lets a test wait for one."""

import threading
from collections.abc import Callable
from typing import TypeVar

from tests.support.waiting import until

from samecommit import App
from samecommit.signals import Signal, Signals

S = TypeVar("S", bound=Signal)


class Recorder:
    """Everything that was told since it was made; signals come from any thread."""

    def __init__(self, source: App | Signals) -> None:
        self._lock = threading.Lock()
        self._heard: list[Signal] = []
        signals = source.signals if isinstance(source, App) else source
        self.stop = signals.subscribe(self._hear)

    def _hear(self, signal: Signal) -> None:
        with self._lock:
            self._heard.append(signal)

    def all(self, kind: type[S], where: Callable[[S], bool] = lambda _: True) -> list[S]:
        """Return what was heard of that kind so far."""
        with self._lock:
            return [signal for signal in self._heard if isinstance(signal, kind) and where(signal)]

    async def one(self, kind: type[S], where: Callable[[S], bool] = lambda _: True, timeout_seconds: float = 15.0) -> S:
        """Wait for the first signal of that kind, heard already or yet to come."""
        found = await until(lambda: self.all(kind, where), timeout_seconds, f"a signal {kind.__name__}")
        return found[0]
