"""A million jobs through one worker: nothing grows once it is warm."""

import asyncio
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.workers import running_worker

from samecommit import App
from samecommit.signals import JobsEnded, Signal

JOBS = 1_000_000
SAMPLES = 40
# in a process of its own: what the enqueueing frees would hide what the worker keeps
FILL = """
import sys
import psycopg
from samecommit import App

app = App(sys.argv[1])

@app.task()
async def nothing(n: int) -> None: ...

for start in range(0, int(sys.argv[2]), 50_000):
    with psycopg.connect(sys.argv[1]) as conn:
        app.enqueue_many(conn, (nothing.job(n) for n in range(start, start + 50_000)))
"""


class Size(NamedTuple):
    """What a process holds."""

    rss_mb: float
    descriptors: int
    threads: int
    tasks: int


def measure() -> Size:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Size(
        pages * resource.getpagesize() / 1e6,
        len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        threading.active_count(),
        len(asyncio.all_tasks()),
    )


def fill(dsn: str) -> None:
    subprocess.run([sys.executable, "-c", FILL, dsn, str(JOBS)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_million_jobs_leave_no_trace_in_the_worker(app: App, dsn: str) -> None:
    ended, sizes = 0, list[Size]()
    all_ended = asyncio.Event()

    @app.task()
    async def nothing(n: int) -> None: ...

    def count(signal: Signal) -> None:
        nonlocal ended
        if isinstance(signal, JobsEnded):
            ended += signal.done
            if ended >= JOBS * (len(sizes) + 1) // SAMPLES:
                sizes.append(measure())
            if ended >= JOBS:
                all_ended.set()

    await asyncio.to_thread(fill, dsn)
    app.signals.subscribe(count)
    began = asyncio.get_running_loop().time()
    async with running_worker(app, concurrency=500):
        await all_ended.wait()
    seconds = asyncio.get_running_loop().time() - began
    for number, size in enumerate(sizes, start=1):
        print(f"{JOBS * number // SAMPLES:9,} jobs: {size.rss_mb:.1f} MB, {size[1:]}")
    print(f"{JOBS / seconds:,.0f} jobs/s")
    warm, last = sizes[SAMPLES // 4], sizes[-SAMPLES // 4 :]
    assert ended == JOBS
    assert max(size.rss_mb for size in last) - last[0].rss_mb < 5
    assert max(size.rss_mb for size in last) - warm.rss_mb < 15
    for grown, before in zip(map(max, zip(*(size[1:] for size in last), strict=True)), warm[1:], strict=True):
        assert grown <= before + 2
