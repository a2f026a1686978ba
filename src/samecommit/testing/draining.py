"""Runs what is due, with a real worker, and says what became of it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from samecommit.app import App
from samecommit.config import WorkerConfig
from samecommit.storage.query import statement

_LOOK_SECONDS = 0.01
_HURRY: dict[str, Any] = {"grace_seconds": 2.0, "lease_seconds": 10.0, "heartbeat_seconds": 1.0, "reap_seconds": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """How many jobs are in each state afterwards, all that the database holds."""

    ready: int = 0
    running: int = 0
    held: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0


async def drain_async(app: App, *, timeout_seconds: float = 10.0, config: WorkerConfig | None = None) -> Drained:
    """Run a worker until nothing is due and nothing runs; jobs for later and retries that wait stay.

    Args:
        app: the application.
        timeout_seconds: how long that may take.
        config: in place of the application's settings, which are used for all queues, with a short grace and lease.

    Raises:
        TimeoutError: something was still due or running; says how many jobs are in each state.
    """
    worker = app.worker(config or replace(app.worker_config, queues=None, **_HURRY))
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(timeout_seconds):
            await worker.started()
            async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=True, prepare_threshold=None) as conn:
                cursor = psycopg.AsyncRawCursor(conn)
                while (await _first(cursor, "testing/unsettled", app.schema))[0]:
                    await asyncio.sleep(_LOOK_SECONDS)
                    if running.done():
                        await running
    except TimeoutError as error:
        msg = f"something is still due or running after {timeout_seconds:g} s: {await _count(app)}"
        raise TimeoutError(msg) from error
    finally:
        worker.stop()
        await running
    return await _count(app)


async def _count(app: App) -> Drained:
    async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=True) as conn:
        await (cursor := psycopg.AsyncRawCursor(conn)).execute(statement("testing/states", app.schema).text)
        return Drained(**dict(await cursor.fetchall()))


async def _first(cursor: psycopg.AsyncRawCursor[Any], label: str, schema: str) -> Any:
    await cursor.execute(statement(label, schema).text)
    return await cursor.fetchone()


def drain(app: App, *, timeout_seconds: float = 10.0, config: WorkerConfig | None = None) -> Drained:
    """Do as `drain_async`, from a test that is no coroutine; also inside a running event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, drain_async(app, timeout_seconds=timeout_seconds, config=config)).result()
