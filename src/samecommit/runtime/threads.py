"""Daemon threads for plain functions: a handler that never returns must not keep the process from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class ThreadPool:
    """At most ``size`` threads, started when needed. `abandon` makes room beside a thread that is stuck."""

    def __init__(self, size: int, name: str = "samecommit") -> None:
        self.size = size
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def __repr__(self) -> str:
        return f"<ThreadPool {len(self._threads)} of {self.size}>"

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work`` on a free thread, or when one is free. It must not raise."""
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self.size:
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def abandon(self) -> None:
        """Allow one thread more: one is stuck and may never come back."""
        self.size += 1

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work."""
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            self._idle.release()
