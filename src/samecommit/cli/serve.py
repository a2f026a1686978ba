"""One worker or relay in this process: started, stopped by signals, ended for certain.

The first SIGTERM or SIGINT stops it gracefully, the second at once, a third ends the process there and then. Two things
could keep a stopped process from ending, so a watch ends it after a while: a handler that blocks the event loop, and
a thread of the user's that never returns.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Protocol

from samecommit import __version__
from samecommit.cli.failure import Exit
from samecommit.cli.log import Log
from samecommit.cli.options import describe_dsn
from samecommit.clock import Monotonic, monotonic
from samecommit.runtime.forks import let_forks_go
from samecommit.signals import Signals
from samecommit.worker.supervisor import TOGETHER_SECONDS, stop_signals


class Served(Protocol):
    """A worker or a relay."""

    dsn: str
    schema: str
    signals: Signals

    async def run(self) -> None: ...
    def stop(self, *, now: bool = ...) -> None: ...


_SIGHUP = getattr(signal, "SIGHUP", None)
LINGER_SECONDS = 10.0
"""How much longer than its grace period a process may take to end."""


class Stopper:
    """Turns the process's signals into a `stop`.

    Args:
        stop: called in the event loop with ``now``.
        grace_seconds: how long the first stop may take before the process is ended by force.
        is_child: whether a supervisor says how to stop: SIGTERM gracefully, SIGINT at once.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[bool], None],
        log: Log,
        *,
        grace_seconds: float,
        is_child: bool = False,
        clock: Monotonic = monotonic,
    ) -> None:
        self._loop, self._stop, self._log, self._clock = loop, stop, log, clock
        self._grace_seconds, self._is_child = grace_seconds, is_child
        self._asked = 0
        self._asked_at = -TOGETHER_SECONDS

    def install(self) -> None:
        """Take over the signals; to be called in the main thread."""
        for number in stop_signals():
            signal.signal(number, self._heard)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        is_repeated = number == _SIGHUP or (self._is_child and number == signal.SIGTERM)
        if self._asked and (is_repeated or now - self._asked_at < TOGETHER_SECONDS):
            return
        self._asked += 2 if self._is_child and number == signal.SIGINT and not self._asked else 1
        self._asked_at = now
        self._ask(signal.Signals(number).name)

    def _ask(self, why: str) -> None:
        """Stop: gracefully the first time, at once the second, without a word the third."""
        if self._asked > 2:
            os._exit(Exit.FAILED)
        is_now = self._asked == 2
        grace = 0.0 if is_now else self._grace_seconds
        end_within(grace + LINGER_SECONDS, Exit.FAILED)
        how = "stopping now" if is_now else f"stopping: what runs has {grace:g} s; again to stop now"
        # on a thread: a signal may arrive while this one writes a line and holds the log's lock
        news = partial(self._log.write, "info", "Stopping", f"{why}: {how}", why=why, now=is_now)
        threading.Thread(target=news, daemon=True).start()
        self._loop.call_soon_threadsafe(self._stop, is_now)


def end_within(seconds: float, status: int) -> None:
    """End this process after so many seconds if it is still there."""
    timer = threading.Timer(seconds, os._exit, args=(status,))
    timer.daemon = True
    timer.start()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes event loops: uvloop's where it is installed."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def serve(served: Served, log: Log, what: str, *, grace_seconds: float, is_child: bool = False) -> int:
    """Run a worker or a relay until it is told to stop; return the exit status.

    Args:
        served: what runs.
        log: where it tells.
        what: it is, for the first line.
        grace_seconds: how long a graceful stop may take.
        is_child: whether a supervisor says how to stop.

    Raises:
        SchemaError: the schema is missing or does not fit this version.
        psycopg.OperationalError: the server does not want us, or was away for ``connect_seconds``.
    """
    served.signals.subscribe(log.hear)
    let_forks_go(stop_signals())  # a `Stopper` has nothing to stop there
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        status = runner.run(_run(served, log, what, grace_seconds=grace_seconds, is_child=is_child))
        sys.stdout.flush()
        end_within(LINGER_SECONDS, status)
    return status


async def _run(served: Served, log: Log, what: str, *, grace_seconds: float, is_child: bool) -> int:
    loop = asyncio.get_running_loop()
    Stopper(loop, lambda now: served.stop(now=now), log, grace_seconds=grace_seconds, is_child=is_child).install()
    name = type(loop).__module__.partition(".")[0]
    line = f"samecommit {__version__} {what}, schema {served.schema!r} of {describe_dsn(served.dsn)}, pid {os.getpid()}, {name}"
    log.write("info", "Starting", line, pid=os.getpid(), schema=served.schema)
    await served.run()
    return Exit.FAILED if getattr(served, "is_worn_out", False) else Exit.OK
