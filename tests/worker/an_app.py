"""An application whose tasks run in child processes. They import it, so it cannot be a fixture; the database is in SAMECOMMIT_DSN."""

import asyncio
import contextvars
import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from samecommit import App, AsyncContext, Backoff, Context, Fail, Hold, RateLimited, Snooze

app = App()


@app.task(executor="process")
def double(ctx: Context, n: int, when: datetime, price: Decimal) -> dict[str, str | int]:
    return {"n": n * 2, "when": when.isoformat(), "price": str(price), "key": ctx.effect_key, "pid": os.getpid()}


@app.task(executor="process")
async def double_async(ctx: AsyncContext, n: int) -> int:
    await asyncio.sleep(0)
    return n * 2 + ctx.attempt - 1


set_by_a_job = contextvars.ContextVar[int | None]("set_by_a_job", default=None)


def swap() -> list[int | None]:
    found = set_by_a_job.get()
    set_by_a_job.set(1)
    return [found, os.getpid()]


@app.task(executor="process")
def set_context() -> list[int | None]:
    return swap()


@app.task(executor="process")
async def set_context_async() -> list[int | None]:
    return swap()


@app.task(executor="process")
def pid() -> int:
    return os.getpid()


@app.task(executor="process", max_attempts=5, backoff=Backoff(base_seconds=0.01, jitter=0.0))
def die(how: str) -> None:
    match how:
        case "exit":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "lie":
            raise SystemExit(3)


forking = multiprocessing.get_context("fork")


@app.task(executor="process", max_attempts=1)
def die_and_leave_a_fork(path: str) -> None:
    forked = forking.Process(target=time.sleep, args=(600,))
    forked.start()
    say(path, f"pid {forked.pid}")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def terminate_forks() -> list[int | None]:
    codes = []
    for _ in range(20):  # some are told before they have run a line
        forked = forking.Process(target=time.sleep, args=(600,))
        forked.start()
        forked.terminate()
        forked.join(1)
        codes.append(forked.exitcode)
    return codes


class Moment(datetime):
    """As those of libraries for dates are: a datetime of another class."""


@app.task(executor="process")
def snooze_until_a_moment() -> None:
    raise Snooze(Moment(2100, 1, 1, tzinfo=UTC))


left: list[asyncio.Task[None]] = []


@app.task(executor="process")
async def leave_a_task_that_records(ctx: AsyncContext) -> None:
    async def late() -> None:
        await asyncio.sleep(0)  # goes on when the child runs the next job
        ctx.record(of=ctx.job.id)

    left.append(asyncio.create_task(late()))


@app.task(executor="process")
async def last_longer_than_a_tale() -> None:
    await asyncio.sleep(0.5)


@app.task(executor="process")
def end(how: str) -> None:
    raise {
        "fail": Fail("no use"),
        "hold": Hold("look", data={"n": 1}),
        "limited": RateLimited(3600, "slow"),
        "snooze": Snooze(3600),
        "error": ValueError("broken"),
    }[how]


def say(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


@app.task(executor="process", timeout=0.5, max_attempts=1)
def hang(path: str, how: str) -> None:
    say(path, f"pid {os.getpid()}")
    if how == "child":
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        say(path, f"pid {started.pid}")
    try:
        while True:
            time.sleep(0.01)
    finally:
        say(path, "cleaned up")
        if how == "stubborn":
            time.sleep(600)


@app.task(executor="process")
def wait(path: str) -> None:
    say(path, f"pid {os.getpid()}")
    time.sleep(600)


@app.task(executor="process")
async def wait_async(path: str) -> None:
    say(path, f"pid {os.getpid()}")
    try:
        await asyncio.sleep(600)
    finally:
        say(path, "cleaned up")


@app.task(executor="process")
def write(ctx: Context, fails: bool) -> None:
    with ctx.transaction() as conn:
        conn.execute("INSERT INTO written VALUES (%s)", [ctx.job.id])
        if fails:
            raise ValueError("after the write")


@app.task(executor="process")
async def write_async(ctx: AsyncContext) -> None:
    async with ctx.transaction() as conn:
        await conn.execute("INSERT INTO written VALUES (%s)", [ctx.job.id])


@app.task(executor="process")
def tell(ctx: Context, path: str) -> None:
    ctx.record(model="m1")
    ctx.progress({"done": 3})
    while not Path(path).exists():
        time.sleep(0.01)
    ctx.record(tokens=12)


@app.task(executor="process")
def look_around() -> dict[str, object]:
    heard: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(f"{record.job_kind} {record.job_id}")  # type: ignore[attr-defined]

    logging.getLogger("here").addHandler(Keep())
    logging.getLogger("here").warning("hello")
    opened = [str(place.readlink()) for place in Path("/proc/self/fd").iterdir() if place.is_symlink()]
    return {
        "log": heard,
        "sockets": sum("socket" in name for name in opened),
        "input": str(Path("/proc/self/fd/0").readlink()),
        "threads": threading.active_count(),
    }


@app.task(executor="process")
def grow(mb: int) -> int:
    global kept
    kept = b"x" * (mb * 1_000_000)
    return os.getpid()


kept = b""
