"""The kit that users test with: contexts, draining, assertions, crashes at every line."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from samecommit import App, AsyncContext, Context, Hold, Task, Tasks, WorkerConfig
from samecommit.errors import ConfigError, PayloadError
from samecommit.testing import (
    FakeRun,
    assert_enqueued,
    async_context,
    context,
    crash_at_every_point,
    crash_at_every_point_async,
    drain,
    drain_async,
    enqueued,
    round_trip,
)
from samecommit.testing.plugin import Template

tasks = Tasks()
ledger: dict[int, int] = {}
charged: set[str] = set()


@tasks.task()
async def review(ctx: AsyncContext, amount: int) -> str:
    ctx.record(model="m", tokens=amount)
    ctx.progress(0.5)
    if amount > 100 and ctx.job.decision is None:
        raise Hold("large", {"amount": amount})
    return f"{amount} at attempt {ctx.attempt}"


@tasks.task()
def careful(ctx: Context, account: int) -> None:
    if ctx.effect_key in charged:
        return
    charged.add(ctx.effect_key)
    ledger[account] = 1


@tasks.task()
def careless(ctx: Context, account: int) -> None:
    before = ledger.get(account, 0)
    ledger[account] = before + 1
    ctx.record(balance=ledger[account])


@tasks.task()
async def slow_and_careless(account: int) -> None:
    ledger[account] = ledger.get(account, 0) + 1
    await asyncio.sleep(0)


@tasks.task()
def careless_in_its_last_line(account: int) -> None:
    ledger[account] = ledger.get(account, 0) + 1


def logged(fn: Callable[[int], None]) -> Callable[[int], None]:
    @functools.wraps(fn)
    def wrapper(account: int) -> None:
        fn(account)

    return wrapper


@tasks.task()
@logged
def careless_below_a_decorator(account: int) -> None:
    ledger[account] = ledger.get(account, 0) + 1
    ledger[account] = max(ledger[account], 0)


@tasks.task()
def careless_behind_what_catches_all(account: int) -> None:
    try:
        before = ledger.get(account, 0)
    except BaseException:  # noqa: BLE001 - as handlers do
        before = 0
    ledger[account] = before + 1
    ledger[account] = max(ledger[account], 0)


def reset() -> None:
    ledger.clear()
    charged.clear()


def is_charged_once() -> None:
    assert ledger == {1: 1}


def test_a_task_is_called_like_a_function_and_its_run_shows_what_it_told() -> None:
    run = FakeRun()
    assert asyncio.run(review(async_context(run, attempt=3), 7)) == "7 at attempt 3"
    assert run.recorded == {"model": "m", "tokens": 7}
    assert run.progressed == [0.5]


def test_an_outcome_is_raised_to_the_test_and_a_decision_can_be_given() -> None:
    with pytest.raises(Hold) as held:
        asyncio.run(review(async_context(), 500))
    assert held.value.data == {"amount": 500}
    assert asyncio.run(review(async_context(decision={"ok": True}), 500)) == "500 at attempt 1"


def test_a_record_that_could_not_be_stored_is_refused_as_in_a_worker() -> None:
    with pytest.raises(PayloadError):
        context().record(bad=float("nan"))


def test_a_record_that_is_too_large_is_refused_as_in_a_worker() -> None:
    run = FakeRun()
    with pytest.raises(PayloadError):
        context(run).record(a="x" * 70_000)
    context(run).record(a="x" * 40_000)
    with pytest.raises(PayloadError):
        context(run).record(b="x" * 40_000)
    with pytest.raises(PayloadError):
        context(run).progress("x" * 70_000)
    assert (list(run.recorded), run.progressed) == (["a"], [])


def test_an_unknown_field_of_a_job_is_named() -> None:
    with pytest.raises(ConfigError, match="no field 'colour'"):
        context(colour="red")


def test_a_transaction_without_a_database_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="dsn"), context().transaction():
        pass


def test_a_transaction_on_a_database_commits(samecommit_dsn: str) -> None:
    run = FakeRun(samecommit_dsn)
    with context(run).transaction() as conn:
        conn.execute("CREATE TABLE kept (id int)")
    with psycopg.connect(samecommit_dsn) as conn:
        assert conn.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert run.is_finished


def test_a_transaction_on_a_database_is_not_the_handlers_to_commit(samecommit_dsn: str) -> None:
    run = FakeRun(samecommit_dsn)
    with pytest.raises(psycopg.ProgrammingError), context(run).transaction() as conn:
        conn.commit()
    assert not run.is_finished

    async def commit() -> None:
        async with async_context(run).transaction() as conn:
            await conn.commit()

    with pytest.raises(psycopg.ProgrammingError):
        asyncio.run(commit())
    assert not run.is_finished


def test_an_end_that_was_rolled_back_is_none(samecommit_dsn: str) -> None:
    run = FakeRun(samecommit_dsn)
    ctx = context(run)
    with pytest.raises(ValueError, match="after"), ctx.transaction() as conn:  # noqa: PT012
        ctx.finish(conn, 7)
        raise ValueError("after")
    assert (run.is_finished, run.result) == (False, None)


def test_arguments_make_the_round_trip_without_a_database() -> None:
    assert round_trip(review, 7) == {"amount": 7}
    with pytest.raises(PayloadError, match="amount"):
        round_trip(review, "7")


def test_a_key_kept_before_the_effect_is_caught_losing_it() -> None:
    def charge() -> None:
        careful(context(effect_key="k"), 1)

    with pytest.raises(AssertionError, match="died before"):
        crash_at_every_point(careful, charge, reset=reset, check=is_charged_once)


def test_a_careless_handler_is_caught_with_the_line_it_died_at() -> None:
    with pytest.raises(AssertionError, match=rf"died before {Path(__file__)}:\d+"):
        crash_at_every_point(careless, lambda: careless(context(), 1), reset=reset, check=is_charged_once)


def test_an_idempotent_handler_passes_and_its_points_are_counted() -> None:
    @tasks.task(name="idempotent")
    def idempotent(account: int) -> None:
        before = 1
        ledger[account] = before

    assert crash_at_every_point(idempotent, lambda: idempotent(1), reset=reset, check=is_charged_once) == 2


def test_a_handler_is_run_again_when_it_died_after_its_last_line() -> None:
    with pytest.raises(AssertionError, match="died after its last line"):
        crash_at_every_point(
            careless_in_its_last_line, lambda: careless_in_its_last_line(1), reset=reset, check=is_charged_once
        )


@pytest.mark.parametrize("task", [careless_below_a_decorator, careless_behind_what_catches_all])
def test_neither_a_decorator_nor_a_handler_that_catches_all_hides_a_line(task: Task[[int], None]) -> None:
    with pytest.raises(AssertionError, match="died before"):
        crash_at_every_point(task, lambda: task(1), reset=reset, check=is_charged_once)


def test_a_run_that_has_ended_its_job_in_its_transaction_is_not_followed_by_another(samecommit_dsn: str) -> None:
    @tasks.task(name="transactional")
    def transactional(ctx: Context, account: int) -> None:
        with ctx.transaction() as conn:
            conn.execute("INSERT INTO ledger VALUES (%s)", [account])
        ledger[account] = 1

    with psycopg.connect(samecommit_dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE ledger (account int)")

        def check() -> None:
            assert conn.execute("SELECT count(*) FROM ledger").fetchone() == (1,)

        def call() -> None:
            transactional(context(FakeRun(samecommit_dsn)), 1)

        crash_at_every_point(transactional, call, reset=lambda: conn.execute("TRUNCATE ledger"), check=check)


def test_an_async_handler_is_crashed_too() -> None:
    async def call() -> None:
        await slow_and_careless(1)

    async def reset_async() -> None:
        reset()

    async def check() -> None:
        is_charged_once()

    with pytest.raises(AssertionError, match="died before"):
        asyncio.run(crash_at_every_point_async(slow_and_careless, call, reset=reset_async, check=check))


def test_crashing_what_never_runs_is_an_error_of_the_test() -> None:
    async def nothing() -> None: ...

    with pytest.raises(AssertionError, match="no line of task 'slow_and_careless' ran"):
        asyncio.run(crash_at_every_point_async(slow_and_careless, nothing, reset=nothing, check=nothing))


def make_app() -> tuple[App, Task[[int, int], int], Task[[], None]]:
    registry = Tasks()

    @registry.task()
    async def add(a: int, b: int) -> int:
        return a + b

    @registry.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError

    return App(tasks=[registry]), add, fail


def test_enqueued_jobs_are_seen_inside_the_transaction_and_drained_after_it(samecommit_dsn: str) -> None:
    app, add, fail = make_app()
    with psycopg.connect(samecommit_dsn) as conn:
        add.enqueue(conn, 1, 2)
        fail.enqueue(conn)
        assert_enqueued(conn, add, a=1)
        assert_enqueued(conn, add, count=1, a=1, b=2)
        assert enqueued(conn, add) == [{"a": 1, "b": 2}]
        with pytest.raises(AssertionError, match="found 0"):
            assert_enqueued(conn, add, a=9)
    drained = drain(app)
    assert (drained.done, drained.failed, drained.ready) == (1, 1, 0)


def test_enqueued_jobs_are_seen_whatever_rows_the_connection_gives(samecommit_dsn: str) -> None:
    _, add, _ = make_app()
    with psycopg.connect(samecommit_dsn, row_factory=dict_row) as conn:
        add.enqueue(conn, 1, 2)
        assert_enqueued(conn, add, a=1)


def test_draining_uses_the_settings_of_the_application(samecommit_dsn: str) -> None:
    registry = Tasks()

    @registry.task(max_attempts=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    app = App(tasks=[registry], worker=WorkerConfig(timeout_seconds=0.2, queues=("another",)))
    with psycopg.connect(samecommit_dsn) as conn:
        hang.enqueue(conn)
    assert drain(app).failed == 1


def test_draining_that_takes_too_long_says_what_is_left(samecommit_dsn: str) -> None:
    registry = Tasks()

    @registry.task()
    async def hang() -> None:
        await asyncio.Event().wait()

    app = App(tasks=[registry])
    with psycopg.connect(samecommit_dsn) as conn:
        hang.enqueue(conn)
    with pytest.raises(TimeoutError, match=r"due or running after 1 s: Drained\(ready=0, running=1,"):
        drain(app, timeout_seconds=1, config=WorkerConfig(grace_seconds=0.1))


async def test_draining_works_inside_a_running_loop(samecommit_dsn: str) -> None:
    app, add, _ = make_app()
    with psycopg.connect(samecommit_dsn) as conn:
        add.enqueue(conn, 1, 2)
    assert (await drain_async(app)).done == 1


def test_each_test_has_a_database_of_its_own(samecommit_dsn: str) -> None:
    app, _, _ = make_app()
    assert drain(app).done == 0


def test_processes_that_share_a_server_have_templates_of_their_own(samecommit_template: Template) -> None:
    server = samecommit_template.server
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute("CREATE DATABASE samecommit_template_0123456789ab")  # of a process that was killed
        with Template(server, "samecommit") as other:
            there = {name for (name,) in conn.execute("SELECT datname FROM pg_database")}
            assert {other.name, samecommit_template.name} <= there, "both are in use"
            assert "samecommit_template_0123456789ab" not in there
        there = {name for (name,) in conn.execute("SELECT datname FROM pg_database")}
        assert other.name not in there and samecommit_template.name in there


def test_a_template_is_in_use_for_those_too_who_come_through_another_database(samecommit_template: Template) -> None:
    server = samecommit_template.server
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute("CREATE DATABASE samecommit_elsewhere")
        try:
            with Template(make_conninfo(server, dbname="samecommit_elsewhere"), "samecommit"):
                there = {name for (name,) in conn.execute("SELECT datname FROM pg_database")}
        finally:
            conn.execute("DROP DATABASE samecommit_elsewhere WITH (FORCE)")
    assert samecommit_template.name in there
