"""B28: what a worker has in hand does not depend on how many jobs it has done."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import psycopg
import pytest
from tests.support.waiting import until
from tests.support.workers import running_worker

from samecommit import App

JOBS = 5_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def in_hand() -> dict[str, int]:
    gc.collect()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_b28_a_worker_does_not_grow_with_the_jobs_that_it_did(dsn: str, app: App) -> None:
    """45,000 jobs after a warm-up of 20,000: a third fail once, some outlive their timeout, the rest do nothing."""

    @app.task(max_attempts=2)
    async def nothing(n: int) -> None:
        if n % 3 == 0:
            raise ValueError(n)

    @app.task(max_attempts=1, timeout=0.01)
    async def slow() -> None:
        await asyncio.sleep(10)

    async def work_off() -> float:
        with psycopg.connect(dsn) as conn:
            app.enqueue_many(conn, [nothing.job(n) for n in range(JOBS)])
            app.enqueue_many(conn, [slow.job() for _ in range(JOBS // 50)])
        with psycopg.connect(dsn, autocommit=True) as conn:
            await until(
                lambda: conn.execute("SELECT count(*) FROM samecommit.job WHERE state = 'ready'").fetchone() == (0,), 60
            )
        gc.collect()
        return resident_mb()

    async with running_worker(app, concurrency=100) as worker:
        warm = [await work_off() for _ in range(4)][-1]
        before = in_hand()
        sizes = [await work_off() for _ in range(9)]
        await until(lambda: all(now <= before[what] for what, now in in_hand().items()), 10)
        assert worker.executor.is_empty
        print(f"{warm:.1f} MB after 20,000 jobs, then {sizes}")
        assert sizes[-1] - warm < 2.0, f"{sizes[-1] - warm:.1f} MB more after {9 * JOBS} jobs"
