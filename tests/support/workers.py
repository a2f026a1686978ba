"""Runs workers in the test's own loop, with waits that suit tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from samecommit import App, Backoff, WorkerConfig
from samecommit.worker.worker import Worker


def fast(**settings: Any) -> WorkerConfig:
    """Settings with short waits: half a second of lease at least, retries at once."""
    defaults: dict[str, Any] = {
        "concurrency": 10,
        "reap_seconds": 0.1,
        "grace_seconds": 5.0,
        "backoff": Backoff(base_seconds=0.01, cap_seconds=0.05, jitter=0.0),
    }
    return WorkerConfig(**{**defaults, **settings})


@asynccontextmanager
async def running_worker(app: App, config: WorkerConfig | None = None, **settings: Any) -> AsyncIterator[Worker]:
    """Run a worker while the block lasts; it is stopped at the end, and its errors are the test's."""
    worker = app.worker(config or fast(**settings))
    task = asyncio.create_task(worker.run())
    started = asyncio.create_task(worker.started())
    try:
        async with asyncio.timeout(15):
            await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        assert started.done(), task.exception() if task.done() else "the worker has not started"
        yield worker
    finally:
        started.cancel()
        worker.stop()
        async with asyncio.timeout(30):
            await task
