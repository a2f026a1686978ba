"""What a handler's context does: records, progress, and the job's end in the handler's own transaction."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from tests.support.engine import reap
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.waiting import until
from tests.support.workers import running_worker

from samecommit import App, AsyncContext, Context
from samecommit.errors import LeaseLost
from samecommit.signals import JobFailed


@pytest.fixture
def business(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE effect (job_id bigint, note text)")


def effects(jobs: Jobs) -> list[int]:
    return [row[0] for row in jobs.all("SELECT job_id FROM effect ORDER BY 1")]


async def test_a_context_knows_its_job(app: App, jobs: Jobs) -> None:
    seen: list[AsyncContext] = []

    @app.task(max_attempts=3)
    async def work(ctx: AsyncContext, n: int) -> None:
        seen.append(ctx)
        if ctx.attempt < 3:
            raise ValueError

    job_id = app.enqueue(work.using(tags=["a"], meta={"actor": "anna"}).job(1)).id
    named = app.enqueue(work.using(effect_key="order:1", priority=-1).job(1)).id
    async with running_worker(app, concurrency=1):
        await jobs.ended(named)
    mine = [ctx for ctx in seen if ctx.job.id == job_id]
    assert [ctx.attempt for ctx in mine] == [1, 2, 3]
    assert (mine[0].job.kind, mine[0].job.tags, mine[0].job.meta) == ("work", ["a"], {"actor": "anna"})
    installation = jobs.value("SELECT value #>> '{}' FROM $.setting WHERE name = 'installation'")
    created = jobs.value("SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM $.jobs WHERE id = %s", job_id)
    assert {ctx.effect_key for ctx in mine} == {f"{installation}:{job_id}:{created}"}
    assert {ctx.effect_key for ctx in seen if ctx.job.id == named} == {"order:1"}


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_what_is_recorded_is_kept_with_its_attempt(app: App, jobs: Jobs, is_async: bool) -> None:
    def go(ctx: AsyncContext | Context) -> None:
        ctx.record(model="m1", tokens=10)
        ctx.record(tokens=12)
        if ctx.attempt == 1:
            raise ValueError("again")

    if is_async:

        @app.task(name="work")
        async def on_loop(ctx: AsyncContext) -> None:
            go(ctx)

        work = on_loop
    else:

        @app.task(name="work")
        def on_thread(ctx: Context) -> None:
            go(ctx)

        work = on_thread
    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        await jobs.ended(job_id)
    attempts = jobs.attempts(job_id)
    assert [attempt["record"] for attempt in attempts] == [{"model": "m1", "tokens": 12}] * 2
    assert [attempt["outcome"] for attempt in attempts] == ["error", "done"]


async def test_records_and_progress_are_seen_while_the_job_runs(app: App, jobs: Jobs) -> None:
    go_on = asyncio.Event()

    @app.task()
    async def work(ctx: AsyncContext) -> None:
        ctx.record(model="m1")
        for n in range(100):
            ctx.progress({"page": n})
        await go_on.wait()
        ctx.record(cost=3)

    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        await until(lambda: jobs.all("SELECT progress FROM $.running") == [({"page": 99},)])
        assert jobs.attempts(job_id)[0]["record"] == {"model": "m1"}
        go_on.set()
        await jobs.ended(job_id)
    (attempt,) = jobs.attempts(job_id)
    assert (attempt["record"], attempt["progress"]) == ({"model": "m1", "cost": 3}, {"page": 99})


async def test_a_record_that_cannot_be_stored_is_the_handler_s_error(app: App, jobs: Jobs) -> None:  # B01g
    @app.task(max_attempts=1)
    async def work(ctx: AsyncContext, name: str) -> None:
        ctx.record(fine=1)
        values: dict[str, Any] = {"NUL": "a\0b", "NaN": float("nan"), "object": object()}
        ctx.record(x=values[name])

    ids = [app.enqueue(work.job(name)).id for name in ("NUL", "NaN", "object")]
    async with running_worker(app):
        for job_id in ids:
            assert (await jobs.ended(job_id, "failed"))["last_error"].startswith("PayloadError: ")
            assert jobs.attempts(job_id)[0]["record"] == {"fine": 1}


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_records_that_are_too_much_together_are_the_handler_s_error(app: App, jobs: Jobs, is_async: bool) -> None:
    """Each fits, and the last one does not fit beside the others: found when it is given, not when the end is written."""

    def fill(record: Callable[..., None]) -> None:
        for n in range(1000):
            record(**{f"k{n}": "x" * 1000})

    if is_async:

        @app.task(name="work", max_attempts=1)
        async def on_loop(ctx: AsyncContext, fills: bool) -> None:
            fill(ctx.record) if fills else ctx.record(n=1)

        work: Any = on_loop
    else:

        @app.task(name="work", max_attempts=1)
        def on_thread(ctx: Context, fills: bool) -> None:
            fill(ctx.record) if fills else ctx.record(n=1)

        work = on_thread
    full, other = [app.enqueue(work.job(fills)).id for fills in (True, False)]
    async with running_worker(app):
        assert "too large" in (await jobs.ended(full, "failed"))["last_error"]
        await jobs.ended(other)
    assert len(jobs.attempts(full)[0]["record"]) > 50
    assert jobs.attempts(other)[0]["record"] == {"n": 1}


async def test_what_was_recorded_stays_as_it_was_given(app: App, jobs: Jobs) -> None:
    @app.task(max_attempts=1)
    async def work(ctx: AsyncContext) -> None:
        facts: dict[str, Any] = {"tokens": 1}
        ctx.record(facts=facts)
        facts["tokens"] = object()

    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        await jobs.ended(job_id)
    assert jobs.attempts(job_id)[0]["record"] == {"facts": {"tokens": 1}}


# -------------------------------------------------------------------------------------- the end in the handler's hands


@pytest.mark.usefixtures("business")
async def test_a_coroutine_s_transaction_and_the_job_s_end_commit_together(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work(ctx: AsyncContext, finish: bool) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO effect (job_id) VALUES (%s)", [ctx.job.id])
            assert jobs.state(ctx.job.id) == "running"
            if finish:
                await ctx.finish(conn, {"rows": 1})
        assert jobs.state(ctx.job.id) == "done"

    ids = [app.enqueue(work.job(finish=finish)).id for finish in (True, False)]
    async with running_worker(app):
        results = [(await jobs.ended(job_id))["result"] for job_id in ids]
    assert results == [{"rows": 1}, None]
    assert effects(jobs) == ids
    assert all(jobs.outcomes(job_id) == ["done"] for job_id in ids)


@pytest.mark.usefixtures("business")
async def test_a_plain_function_s_transaction_and_the_job_s_end_commit_together(app: App, jobs: Jobs) -> None:
    @app.task()
    def work(ctx: Context, finish: bool) -> None:
        with ctx.transaction() as conn:
            conn.execute("INSERT INTO effect (job_id) VALUES (%s)", [ctx.job.id])
            if finish:
                ctx.finish(conn, "yes")

    ids = [app.enqueue(work.job(finish=finish)).id for finish in (True, False)]
    async with running_worker(app):
        results = [(await jobs.ended(job_id))["result"] for job_id in ids]
    assert results == ["yes", None]
    assert effects(jobs) == ids


@pytest.mark.usefixtures("business")
async def test_finish_works_on_a_connection_of_the_handler_s_own(app: App, jobs: Jobs, dsn: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))

    @app.task()
    def psycopg_plain(ctx: Context) -> None:
        with psycopg.connect(dsn) as own:
            own.execute("INSERT INTO effect (job_id) VALUES (%s)", [ctx.job.id])
            ctx.finish(own, "plain")

    @app.task()
    async def psycopg_async(ctx: AsyncContext) -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as own:
            await own.execute("INSERT INTO effect (job_id) VALUES (%s)", [ctx.job.id])
            await ctx.finish(own, "async")

    @app.task()
    def session(ctx: Context) -> None:
        with Session(engine) as own, own.begin():
            own.execute(text("INSERT INTO effect (job_id) VALUES (:id)"), {"id": ctx.job.id})
            ctx.finish(own, "session")

    ids = [app.enqueue(task.job()).id for task in (psycopg_plain, psycopg_async, session)]
    try:
        async with running_worker(app):
            results = [(await jobs.ended(job_id))["result"] for job_id in ids]
    finally:
        engine.dispose()
    assert results == ["plain", "async", "session"]
    assert effects(jobs) == ids


@pytest.mark.usefixtures("business")
async def test_an_error_in_the_transaction_undoes_all_of_it_and_is_a_failed_attempt(app: App, jobs: Jobs) -> None:
    @app.task(max_attempts=2)
    async def work(ctx: AsyncContext) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO effect (job_id) VALUES (%s)", [ctx.job.id])
            if ctx.attempt == 1:
                await ctx.finish(conn, "first")
                raise ValueError("after the finish")

    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id)
    assert (row["attempts"], row["result"]) == (1, None)
    assert effects(jobs) == [job_id]
    assert jobs.outcomes(job_id) == ["error", "done"]


@pytest.mark.usefixtures("business")
@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_a_transaction_that_failed_to_commit_can_be_tried_again_and_ends_the_job(
    app: App, conn: psycopg.Connection[Any], jobs: Jobs, is_async: bool
) -> None:
    conn.execute("ALTER TABLE effect ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED")
    conn.execute("INSERT INTO effect VALUES (0, 'taken')")
    write, notes = "INSERT INTO effect VALUES (%s, %s)", ("taken", "free")

    if is_async:

        @app.task(name="work")
        async def on_loop(ctx: AsyncContext) -> None:
            for note in notes:
                with contextlib.suppress(psycopg.errors.UniqueViolation):
                    async with ctx.transaction() as own:
                        await own.execute(write, [ctx.job.id, note])
                    return

        work = on_loop
    else:

        @app.task(name="work")
        def on_thread(ctx: Context) -> None:
            for note in notes:
                with contextlib.suppress(psycopg.errors.UniqueViolation):
                    with ctx.transaction() as own:
                        own.execute(write, [ctx.job.id, note])
                    return

        work = on_thread
    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        await jobs.ended(job_id)
    assert effects(jobs) == [0, job_id]
    assert jobs.outcomes(job_id) == ["done"]


@pytest.mark.usefixtures("business")
@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_an_end_that_a_savepoint_has_undone_is_made_again_with_the_transaction(
    app: App, jobs: Jobs, is_async: bool
) -> None:
    write = "INSERT INTO effect VALUES (%s, %s)"

    if is_async:

        @app.task(name="work")
        async def on_loop(ctx: AsyncContext) -> None:
            async with ctx.transaction() as own:
                await own.execute(write, [ctx.job.id, "kept"])
                with contextlib.suppress(ValueError):
                    async with own.transaction():
                        await own.execute(write, [ctx.job.id, "undone"])
                        await ctx.finish(own, "undone")
                        raise ValueError

        work = on_loop
    else:

        @app.task(name="work")
        def on_thread(ctx: Context) -> None:
            with ctx.transaction() as own:
                own.execute(write, [ctx.job.id, "kept"])
                with contextlib.suppress(ValueError), own.transaction():
                    own.execute(write, [ctx.job.id, "undone"])
                    ctx.finish(own, "undone")
                    raise ValueError

        work = on_thread
    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id)
    assert row["result"] is None
    assert jobs.all("SELECT note FROM effect") == [("kept",)]
    assert jobs.outcomes(job_id) == ["done"]


@pytest.mark.usefixtures("business")
@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_what_follows_the_transaction_that_ended_the_job_cannot_commit_as_the_job_s(
    app: App, jobs: Jobs, is_async: bool
) -> None:
    write, told = "INSERT INTO effect VALUES (%s, %s)", list[str]()

    if is_async:

        @app.task(name="work")
        async def on_loop(ctx: AsyncContext) -> None:
            for note in ("first", "second"):  # as a handler does that was not told of its commit
                try:
                    async with ctx.transaction() as own:
                        await own.execute(write, [ctx.job.id, note])
                except LeaseLost as error:
                    told.append(str(error))

        work = on_loop
    else:

        @app.task(name="work")
        def on_thread(ctx: Context) -> None:
            for note in ("first", "second"):
                try:
                    with ctx.transaction() as own:
                        own.execute(write, [ctx.job.id, note])
                except LeaseLost as error:
                    told.append(str(error))

        work = on_thread
    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        await jobs.ended(job_id)
        await until(lambda: told)
    assert jobs.all("SELECT note FROM effect") == [("first",)]
    assert len(told) == 1 and "ended by an earlier transaction" in told[0]


@pytest.mark.usefixtures("business")
async def test_a_failed_statement_in_the_transaction_is_a_failed_attempt(app: App, jobs: Jobs) -> None:  # B13
    @app.task(max_attempts=1)
    def work(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute("SELECT 1/0")

    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        assert (await jobs.ended(job_id, "failed"))["last_error"].startswith("DivisionByZero: ")


@pytest.mark.usefixtures("business")
@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_a_run_that_lost_its_job_is_told_and_its_writes_are_undone(  # B15
    app: App, conn: psycopg.Connection[Any], jobs: Jobs, is_async: bool
) -> None:
    told: list[str] = []
    runs: list[int] = []

    def steal(ctx: AsyncContext | Context) -> bool:
        runs.append(ctx.job.claims)
        if len(runs) == 1:  # what the reaper does to a claim whose lease it took for dead
            jobs.all("UPDATE $.claim SET lease_id = 1")
            assert reap(conn)[1] == 1
        return len(runs) == 1

    if is_async:

        @app.task(name="work")
        async def on_loop(ctx: AsyncContext) -> None:
            try:
                async with ctx.transaction() as own:
                    await own.execute("INSERT INTO effect (job_id, note) VALUES (%s, %s)", [ctx.job.id, str(len(runs))])
                    steal(ctx)
            except LeaseLost as error:
                told.append(str(error))
                raise

        work = on_loop
    else:

        @app.task(name="work")
        def on_thread(ctx: Context) -> None:
            try:
                with ctx.transaction() as own:
                    own.execute("INSERT INTO effect (job_id, note) VALUES (%s, %s)", [ctx.job.id, str(len(runs))])
                    steal(ctx)
            except LeaseLost as error:
                told.append(str(error))
                raise

        work = on_thread
    recorder = Recorder(app)
    job_id = app.enqueue(work.job()).id
    async with running_worker(app, chores=False):
        await jobs.ended(job_id)
    assert len(told) == 1 and f"job {job_id} belongs to another run" in told[0]
    assert jobs.all("SELECT job_id, note FROM effect") == [(job_id, "1")]
    assert jobs.outcomes(job_id) == ["lost", "done"]
    assert recorder.all(JobFailed) == []


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_a_finish_that_is_never_committed_is_noticed(app: App, jobs: Jobs, dsn: str, is_async: bool) -> None:
    if is_async:

        @app.task(name="work", max_attempts=1)
        async def on_loop(ctx: AsyncContext) -> None:
            own = await psycopg.AsyncConnection.connect(dsn)
            await ctx.finish(own, "lost")
            await own.close()

        work = on_loop
    else:

        @app.task(name="work", max_attempts=1)
        def on_thread(ctx: Context) -> None:
            own = psycopg.connect(dsn)
            ctx.finish(own, "lost")
            own.close()

        work = on_thread
    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        await until(lambda: jobs.attempts(job_id))
        row = jobs.row(job_id)
    assert "its transaction was not committed" in row["last_error"]
    assert row["state"] == "failed"


async def test_a_finish_that_meets_an_operator_s_lock_does_not_lose_the_job(app: App, jobs: Jobs, dsn: str) -> None:
    with psycopg.connect(dsn) as operator:

        @app.task()
        async def work(ctx: AsyncContext) -> str:
            if ctx.job.claims == 1:
                operator.execute("SELECT FROM samecommit.job WHERE id = %s FOR UPDATE", [ctx.job.id])
                try:
                    async with ctx.transaction():
                        pass
                finally:
                    operator.rollback()
            return "second"

        job_id = app.enqueue(work.job()).id
        async with running_worker(app):
            await until(lambda: jobs.outcomes(job_id) == ["error"])
            assert jobs.value("SELECT $.retry(%s)", job_id) == "retried"
            assert (await jobs.ended(job_id))["result"] == "second"
