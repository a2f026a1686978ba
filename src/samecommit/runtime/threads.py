"""Daemon threads for plain functions: a handler that never returns must not keep the process from ending."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from contextlib import suppress


class ThreadPool:
    """At most ``size`` threads, started when needed, and as many again in place of those that are stuck.

    A thread cannot be killed. `abandon` says that one is stuck and lets another take its place; should it come back, the
    surplus ends.
    """

    def __init__(self, size: int, name: str = "samecommit") -> None:
        self.size, self.stuck = size, 0
        self._name, self._numbers = name, itertools.count()
        self._work: queue.SimpleQueue[Callable[[], bool | None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0
        self._idle = self._untaken = 0  # threads that wait for work, and work that no thread has taken

    def __repr__(self) -> str:
        return f"<ThreadPool {self._alive} of {self.size}, {self.stuck} stuck>"

    @property
    def is_exhausted(self) -> bool:
        """Whether every thread is stuck, the spare ones too."""
        return self.stuck >= 2 * self.size

    def submit(self, work: Callable[[], bool | None]) -> None:
        """Run ``work`` on a free thread, or when one is free. It must not raise; it returns whether it was abandoned meanwhile."""
        with self._lock:
            self._untaken += 1
            is_short = self._untaken > self._idle
        self._work.put(work)
        if is_short:
            with suppress(RuntimeError):  # the system has no thread to give: `look` asks again
                self._grow()

    def look(self) -> None:
        """Start a thread for what waits, where the system had none to give before; to be called now and then.

        Raises:
            RuntimeError: it has none now either.
        """
        with self._lock:
            is_short = self._untaken > self._idle
        if is_short:
            self._grow()

    def abandon(self) -> None:
        """Start another thread for what waits: one is stuck and may never come back."""
        with self._lock:
            self.stuck += 1
        if not self._work.empty():
            with suppress(RuntimeError):
                self._grow()

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work."""
        for _ in range(self._alive):
            self._work.put(None)

    @property
    def _most(self) -> int:
        return self.size + min(self.stuck, self.size)

    def _grow(self) -> None:
        with self._lock:
            if self._alive >= self._most:
                return
            self._alive += 1
        try:
            threading.Thread(target=self._run, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._alive -= 1
            raise

    def _run(self) -> None:
        while (work := self._take()) is not None:
            if work() and self._is_surplus():
                return

    def _take(self) -> Callable[[], bool | None] | None:
        with self._lock:
            self._idle += 1
        work = self._work.get()
        with self._lock:
            self._idle -= 1
            self._untaken -= work is not None
        return work

    def _is_surplus(self) -> bool:
        """Count a thread that came back; True when another has taken its place."""
        with self._lock:
            self.stuck -= 1
            if self._alive <= self._most:
                return False
            self._alive -= 1
            return True
