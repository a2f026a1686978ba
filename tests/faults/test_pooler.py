"""Behind a transaction pooler: everything works but what needs a session, and no session setting leaks to others."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from tests.support.pooler import behind, pooler
from tests.support.recorder import Recorder
from tests.support.waiting import until

from samecommit import App, AsyncContext, Backoff, Context, WorkerConfig
from samecommit.signals import ServiceFailed


@pytest.fixture(params=["extra_float_digits", "extra_float_digits,options"], ids=["refuses options", "ignores options"])
def pooled_dsn(dsn: str, request: pytest.FixtureRequest) -> Iterator[str]:
    with pooler(dsn, ignored=request.param) as port:
        yield behind(dsn, port)


async def test_jobs_run_retry_and_finish_in_transactions_behind_a_pooler(dsn: str, pooled_dsn: str) -> None:
    app = App(pooled_dsn)

    @app.task()
    async def add(a: int) -> int:
        return a + 1

    @app.task(max_attempts=3, backoff=Backoff(base_seconds=0.05))
    async def flaky(ctx: AsyncContext) -> str:
        if ctx.attempt < 3:
            raise ValueError(ctx.attempt)
        return "at last"

    @app.task()
    async def writes(ctx: AsyncContext, n: int) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO written VALUES (%s)", (n,))

    @app.task()
    def on_a_thread(ctx: Context) -> None:
        ctx.record(seen=True)

    with psycopg.connect(pooled_dsn, prepare_threshold=None) as conn:
        conn.execute("CREATE TABLE written (n int)")
        for n in range(60):
            add.enqueue(conn, n)
            writes.enqueue(conn, n)
        flaky.enqueue(conn)
        on_a_thread.enqueue(conn)
    recorder = Recorder(app)
    worker = app.worker(
        WorkerConfig(concurrency=20, lease_seconds=5, heartbeat_seconds=0.5, reap_seconds=0.5, grace_seconds=2)
    )
    running = asyncio.create_task(worker.run())
    # looked at directly: a question that waits for one of the pooler's connections would stop the loop that is to free it
    with psycopg.connect(dsn, autocommit=True) as conn:

        def done() -> int:
            row = conn.execute("SELECT count(*) FROM samecommit.job_history WHERE state = 'done'").fetchone()
            return 0 if row is None else int(row[0])

        await until(lambda: done() == 122, 30)
    worker.stop()
    await running
    assert worker.is_pooled
    with psycopg.connect(pooled_dsn, autocommit=True, prepare_threshold=None) as conn:
        assert conn.execute("SELECT count(*) FROM written").fetchone() == (60,)
        assert {conn.execute("SHOW enable_seqscan").fetchone() for _ in range(20)} == {("on",)}
        assert conn.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
    assert list(recorder.all(ServiceFailed)) == []


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_who_waits_for_a_result_leaves_no_prepared_statement_to_the_next(pooled_dsn: str, is_async: bool) -> None:
    app = App(pooled_dsn)

    @app.task()
    async def work() -> None: ...

    job = app.enqueue(work.job())
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await (app.result_async(job, timeout=1.0) if is_async else asyncio.to_thread(app.result, job, timeout=1.0))
