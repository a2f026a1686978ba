"""A worker process of a run: ``python -m tests.faults.member``, told what to be by ``SAMECOMMIT_MEMBER`` (JSON).

Its handlers write what they do into the run's folder, and so do its signals: ``refused`` counts the ends that the database
did not take. SIGTERM stops it, a second one at once, as the command line does.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.history import History
from tests.support.history_checks import BACKOFF_CAP

from samecommit import App, AsyncContext, Context
from samecommit.config import WorkerConfig
from samecommit.retry import Backoff
from samecommit.signals import (
    CopyFound,
    JobsEnded,
    LeaseWasLost,
    ServiceFailed,
    ServiceRecovered,
    Signal,
    WorkerStarted,
    WorkerStopped,
)
from samecommit.worker.worker import Worker

_PR_SET_PDEATHSIG = 1


class Diary:
    """What this process says of itself."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.refused = 0

    def of(self, op: str, ctx: Any, key: str, **values: Any) -> None:
        """Say what a handler does."""
        run = ctx._run
        self.history.write(op, key=key, job=ctx.job.id, claim=run.claim_id, attempt=ctx.attempt, **values)

    def hear(self, told: Signal) -> None:
        """Write a signal down."""
        match told:
            case JobsEnded(refused=refused) if refused:
                self.refused += refused
                self.history.write("refused", count=refused, total=self.refused)
            case CopyFound(reason=reason):
                self.history.write("waiting", reason=reason)
            case WorkerStarted(lease_id=lease):
                self.history.write("lease", lease=lease)
            case LeaseWasLost(lease_id=lease, running=running, reason=reason):
                self.history.write("lost", lease=lease, running=running, reason=reason)
            case ServiceFailed(service=service, error=error):
                self.history.write("trouble", service=service, error=error)
            case ServiceRecovered(service=service):
                self.history.write("recovered", service=service)
            case WorkerStopped(given_back=given_back):
                self.history.write("stopped", given_back=given_back)
            case _:
                pass


def declare(app: App, diary: Diary) -> None:  # noqa: C901 - a list of handlers
    """Declare what the jobs of a run do."""

    @app.task()
    async def nap(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        await asyncio.sleep(seconds)
        diary.of("end", ctx, key)

    @app.task()
    def doze(ctx: Context, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        time.sleep(seconds)
        diary.of("end", ctx, key)

    @app.task()
    def burn(ctx: Context, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(range(10_000))
        diary.of("end", ctx, key)

    @app.task()
    async def effect(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO public.effect (key) VALUES (%s)", [key])
            await asyncio.sleep(seconds)
            diary.of("end", ctx, key)

    @app.task()
    async def stumble(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        await asyncio.sleep(seconds)
        if ctx.attempt == 1:
            diary.of("error", ctx, key)
            raise ValueError(f"{key} stumbles once")
        diary.of("end", ctx, key)

    @app.task()
    async def block(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        time.sleep(seconds)  # noqa: ASYNC251 - the loop is to be blocked
        diary.of("end", ctx, key)

    @app.task()
    async def leave(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        await asyncio.sleep(seconds)
        diary.of("end", ctx, key)
        raise SystemExit(3)

    @app.task()
    def interrupt(ctx: Context, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        raise KeyboardInterrupt

    @app.task()
    async def crash(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        await asyncio.sleep(seconds)
        ctypes.string_at(0)

    @app.task()
    async def vanish(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        await asyncio.sleep(seconds)
        os._exit(9)


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


class _Base(BaseException):
    pass


_OUTBURSTS: tuple[BaseException, ...] = (
    SystemExit(0), SystemExit("x"), GeneratorExit(), asyncio.CancelledError(), _Base("bare"), _Unprintable(),
    ExceptionGroup("two", [ValueError(1), KeyError(2)]), StopAsyncIteration(), ValueError("nul \0 and \ud800"),
)  # fmt: skip
_HOARDS: tuple[Any, ...] = ({"a": "\0"}, {"a": "\ud800"}, float("nan"), object())


def declare_bad(app: App, diary: Diary) -> None:  # noqa: C901 - a list of handlers
    """Declare jobs whose first attempt fails in a way that is not an ordinary error."""

    def number(key: str) -> int:
        return int(key.rpartition("-")[2])

    @app.task()
    async def outburst(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        if ctx.attempt == 1:
            diary.of("error", ctx, key)
            raise _OUTBURSTS[number(key) % len(_OUTBURSTS)]
        diary.of("end", ctx, key)

    @app.task(timeout=0.3)
    async def linger(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                await asyncio.sleep(0.3)
                diary.of("error", ctx, key)
                raise ValueError(f"{key} swallowed its cancellation") from None
        diary.of("end", ctx, key)

    @app.task()
    async def hoard(ctx: AsyncContext, key: str, seconds: float) -> Any:
        diary.of("start", ctx, key)
        if ctx.attempt == 1:
            diary.of("error", ctx, key)
            return _HOARDS[number(key) % len(_HOARDS)]
        diary.of("end", ctx, key)
        return None

    @app.task()
    async def shout(ctx: AsyncContext, key: str, seconds: float) -> None:
        diary.of("start", ctx, key)
        if ctx.attempt == 1:
            diary.of("error", ctx, key)
            raise ValueError("x" * 5_000_000)
        diary.of("end", ctx, key)


async def work(worker: Worker, diary: Diary) -> None:
    """Work until a signal says stop."""
    asked = 0
    loop = asyncio.get_running_loop()

    def stop(*_: object) -> None:
        nonlocal asked
        asked += 1
        if not loop.is_closed():  # a handler of the loop would go with it, and a late signal would kill
            loop.call_soon_threadsafe(lambda now: worker.stop(now=now), asked > 1)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    await worker.run()
    diary.history.write("totals", refused=worker.completer.refused, written=worker.completer.written)


def main(told: Mapping[str, Any]) -> None:
    """Be what one is told to be."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if told.get("broken"):
        module = importlib.import_module(f"tests.faults.broken.{told['broken']}")
        getattr(module, "apply", lambda: None)()  # what is broken may be the client
    # the monotonic clock is the machine's: the histories stay right where a fault makes this process's own clock wrong
    history = History(Path(told["folder"], told["name"] + ".jsonl"), lambda: told["booted"] + time.monotonic())
    diary = Diary(history)
    config = WorkerConfig(**{"backoff": Backoff(base_seconds=0.2, cap_seconds=BACKOFF_CAP), **told["config"]})
    app = App(told["dsn"], worker=config)
    declare(app, diary)
    declare_bad(app, diary)
    app.signals.subscribe(diary.hear)
    diary.history.write("begin", pid=os.getpid())
    asyncio.run(work(app.worker(), diary))
    sys.exit(0)


if __name__ == "__main__":
    main(json.loads(os.environ["SAMECOMMIT_MEMBER"]))
