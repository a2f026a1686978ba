"""How a measured process runs its event loop, and how it hears that it should end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Stoppable(Protocol):
    """A worker, or the outbox."""

    def stop(self) -> None: ...


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def stop_at_eof(loop: asyncio.AbstractEventLoop, *running: Stoppable) -> None:
    """Wait until standard input is closed, then stop what runs; in a thread of its own."""
    sys.stdin.read()
    for one in running:
        try:
            loop.call_soon_threadsafe(one.stop)
        except RuntimeError:
            pass  # the loop has ended by itself
