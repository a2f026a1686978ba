import psycopg
from tests.support.jobs import Jobs
from tests.support.workers import running_worker

from samecommit import App, AsyncContext, Context


async def test_plain_handlers_share_their_connections(app: App, jobs: Jobs) -> None:
    @app.task()
    def work(ctx: Context) -> None:
        with ctx.transaction() as conn:
            backends.append(conn.info.backend_pid)

    backends: list[int] = []
    async with running_worker(app, concurrency=2):
        for _ in range(12):
            await jobs.ended(app.enqueue(work.job()).id)
    assert len(backends) == 12
    assert len(set(backends)) <= 2


async def test_a_connection_comes_back_clean_after_a_handler_that_raised(app: App, jobs: Jobs) -> None:
    @app.task(max_attempts=2)
    def work(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute("CREATE TABLE once ()")
            if ctx.attempt == 1:
                raise ValueError

    async with running_worker(app, concurrency=1):
        await jobs.ended(app.enqueue(work.job()).id)


async def test_plain_and_async_handlers_lend_each_their_kind(app: App, jobs: Jobs) -> None:
    seen: list[type] = []

    @app.task()
    def plain(ctx: Context) -> None:
        with ctx.transaction() as conn:
            seen.append(type(conn))

    @app.task()
    async def asynchronous(ctx: AsyncContext) -> None:
        async with ctx.transaction() as conn:
            seen.append(type(conn))

    async with running_worker(app):
        for task in (plain, asynchronous):
            await jobs.ended(app.enqueue(task.job()).id)
    assert seen == [psycopg.Connection, psycopg.AsyncConnection]


async def test_no_more_connections_are_lent_than_the_setting_says(app: App, jobs: Jobs) -> None:
    backends: set[int] = set()

    @app.task()
    async def work(ctx: AsyncContext) -> None:
        async with ctx.transaction() as conn:
            backends.add(conn.info.backend_pid)
            await conn.execute("SELECT pg_sleep(0.02)")

    async with running_worker(app, concurrency=8, handler_connections=3):
        ids = [app.enqueue(work.job()).id for _ in range(16)]
        for job_id in ids:
            await jobs.ended(job_id)
    assert len(backends) == 3
