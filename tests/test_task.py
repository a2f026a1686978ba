"""What a declared task can be asked for, and that a job exists if and only if its transaction commits."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from tests.support.jobs import Jobs

from samecommit import App, Task
from samecommit.errors import (
    ConfigError,
    EnqueueError,
    NotInTransaction,
    PayloadError,
    UnknownQueue,
    UnsupportedConnection,
)

pytestmark = pytest.mark.pg15


@pytest.fixture
def work(app: App) -> "Task[..., None]":
    @app.task()
    async def work(n: int) -> None:
        """Do something."""

    return work


# ---------------------------------------------------------------------------------------------------------- connections


@contextmanager
def plain(dsn: str) -> Iterator[tuple[Any, Callable[[], Any]]]:
    with psycopg.connect(dsn) as conn:
        yield conn, conn.transaction


@contextmanager
def core(dsn: str) -> Iterator[tuple[Any, Callable[[], Any]]]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    with engine.connect() as conn:
        yield conn, conn.begin_nested
    engine.dispose()


@contextmanager
def orm(dsn: str) -> Iterator[tuple[Any, Callable[[], Any]]]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    with Session(engine) as session:
        yield session, session.begin_nested
    engine.dispose()


KINDS = [plain, core, orm]


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_exists_if_and_only_if_its_transaction_commits(
    dsn: str, jobs: Jobs, work: "Task[..., None]", kind: Callable[[str], Any]
) -> None:
    with kind(dsn) as (conn, _):
        work.enqueue(conn, n=1)
        assert jobs.count() == 0, "nobody sees it before the commit"
        conn.rollback()
        kept = work.enqueue(conn, n=2)
        conn.commit()
        work.enqueue(conn, n=3)
    # at the end of its block psycopg commits, and SQLAlchemy does not
    assert [row[0]["n"] for row in jobs.all("SELECT payload FROM $.jobs ORDER BY id")] == (
        [2, 3] if kind is plain else [2]
    )
    assert jobs.row(kept.id)["payload"] == {"n": 2}
    assert kept.created


@pytest.mark.parametrize("kind", KINDS)
def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it(
    dsn: str, jobs: Jobs, work: "Task[..., None]", kind: Callable[[str], Any]
) -> None:
    class Undo(Exception):
        pass

    with kind(dsn) as (conn, savepoint):
        work.enqueue(conn, n=1)
        with contextlib.suppress(Undo), savepoint():
            work.enqueue(conn, n=2)
            raise Undo
        with savepoint():
            work.enqueue(conn, n=3)
        conn.commit()
    assert [row[0]["n"] for row in jobs.all("SELECT payload FROM $.jobs ORDER BY id")] == [1, 3]


async def test_the_same_on_an_asynchronous_connection(dsn: str, jobs: Jobs, work: "Task[..., None]") -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        await work.enqueue(conn, n=1)
        await conn.rollback()
        await work.enqueue(conn, n=2)
        async with conn.transaction(force_rollback=True):
            await work.enqueue(conn, n=3)
        await conn.commit()
        coroutine = work.enqueue(conn, n=4)
        coroutine.close()
    assert [row[0]["n"] for row in jobs.all("SELECT payload FROM $.jobs ORDER BY id")] == [2]


def test_a_connection_that_would_commit_by_itself_is_refused(dsn: str, jobs: Jobs, work: "Task[..., None]") -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        with pytest.raises(NotInTransaction, match="task 'work' was enqueued outside a transaction"):
            work.enqueue(conn, n=1)
        assert jobs.count() == 0
        with conn.transaction():
            work.enqueue(conn, n=2)
        work.using(own_transaction=True).enqueue(conn, n=3)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), isolation_level="AUTOCOMMIT")
    with Session(engine) as session, pytest.raises(NotInTransaction):
        work.enqueue(session, n=4)
    engine.dispose()
    assert [row[0]["n"] for row in jobs.all("SELECT payload FROM $.jobs ORDER BY id")] == [2, 3]


async def test_an_asynchronous_one_that_would_commit_by_itself_is_refused_too(
    dsn: str, jobs: Jobs, work: "Task[..., None]"
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        with pytest.raises(NotInTransaction):
            await work.enqueue(conn, n=1)
        await work.using(own_transaction=True).enqueue(conn, n=2)
    assert jobs.count() == 1


@pytest.mark.parametrize("value", ["a\0b", "\ud800", float("nan"), object(), "text"])
def test_a_refused_argument_leaves_the_transaction_usable(
    dsn: str, jobs: Jobs, app: App, value: object
) -> None:  # B01a-c
    @app.task()
    def sort(values: list[Any], n: int = 0) -> None: ...

    arguments: dict[str, Any] = {"values": [], "n": value} if value == "text" else {"values": [1, {"x": value}]}
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE mine (n int)")
        with pytest.raises(PayloadError) as caught:
            sort.enqueue(conn, **arguments)
        assert caught.value.path == ("$.n" if value == "text" else "$.values[1].x")
        conn.execute("INSERT INTO mine VALUES (1)")
        sort.enqueue(conn, values=[2])
    assert jobs.count() == 1
    assert jobs.value("SELECT count(*) FROM mine") == 1


def test_an_unknown_queue_is_told_in_our_words(dsn: str, jobs: Jobs, work: "Task[..., None]") -> None:
    with psycopg.connect(dsn) as conn:
        with pytest.raises(UnknownQueue, match="unknown queue 'nowhere'"):
            work.using(queue="nowhere").enqueue(conn, n=1)
        conn.rollback()
        work.enqueue(conn, n=1)
    assert jobs.count() == 1


@pytest.mark.parametrize("conn", [None, "postgresql://", object(), asyncio])
def test_what_is_no_connection_is_refused_by_its_class(work: "Task[..., None]", conn: Any) -> None:
    with pytest.raises(UnsupportedConnection, match="no connection that can carry a job"):
        work.enqueue(conn, n=1)


def test_a_caller_s_settings_change_nothing(dsn: str, jobs: Jobs, work: "Task[..., None]") -> None:  # B04c, e
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE SCHEMA hostile")
        conn.execute("CREATE FUNCTION hostile.pg_column_size(jsonb) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
        conn.execute(
            "CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'"
        )
        conn.execute("SET LOCAL search_path = hostile, pg_catalog")
        conn.execute("SET LOCAL TimeZone = 'Asia/Kathmandu'")
        conn.execute("SET LOCAL DateStyle = 'German, DMY'")
        at = datetime(2030, 5, 4, 3, 2, 1, 5, tzinfo=UTC)
        job = work.using(run_at=at).enqueue(conn, n=1)
    assert jobs.row(job.id)["run_at"] == at


# -------------------------------------------------------------------------------------------------------------- options


def test_options_reach_the_row(dsn: str, jobs: Jobs, app: App) -> None:
    @app.task(priority=3, max_attempts=7, version=2)
    def work(n: int) -> None: ...

    at = datetime.now(UTC) + timedelta(days=1)
    one = work.using(
        priority=-5,
        run_at=at,
        delay=timedelta(hours=1),
        max_attempts=2,
        tags=("a", "b"),
        parent_id=12,
        effect_key="k",
        expires_at=at + timedelta(days=1),
        meta={"actor": "anna"},
    )
    with psycopg.connect(dsn) as conn:
        changed, plain = one.enqueue(conn, n=1), work.enqueue(conn, 2)
    row = jobs.row(changed.id)
    wanted = {
        "priority": -5,
        "run_at": at + timedelta(hours=1),
        "max_attempts": 2,
        "tags": ["a", "b"],
        "parent_id": 12,
        "effect_key": "k",
        "expires_at": at + timedelta(days=1),
        "meta": {"actor": "anna"},
        "payload_version": 2,
    }
    assert {name: row[name] for name in wanted} == wanted
    row = jobs.row(plain.id)
    assert (row["priority"], row["max_attempts"], row["tags"], row["meta"]) == (3, 7, None, None)


def test_using_leaves_the_task_itself_alone_and_adds_up(work: "Task[..., None]") -> None:
    both = work.using(priority=1).using(tags=["x"])
    assert both is not work
    assert both.job(n=1).options.values["priority"] == 1
    assert both.job(n=1).options.values["tags"] == ["x"]
    assert "priority" not in work.job(n=1).options.values


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 101},
        {"priority": 1.5},
        {"priority": True},
        {"max_attempts": 0},
        {"max_attempts": 40_000},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": timedelta(days=-1)},
        {"delay": 1e12},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - the point
        {"run_at": "tomorrow"},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - the point
        {"tags": "one"},
        {"tags": [""]},
        {"tags": ["a\0b"]},
        {"effect_key": ""},
        {"effect_key": "x" * 2000},
        {"queue": ""},
        {"queue": "a\nb"},
        {"queue": " a"},
        {"meta": {"x": float("nan")}},
        {"meta": {"x": "x" * 100_000}},
        {"colour": "red"},
    ],
    ids=str,
)
def test_options_that_no_database_would_take_are_refused_before_any_sql(
    work: "Task[..., None]", options: dict[str, Any]
) -> None:
    with pytest.raises((ConfigError, EnqueueError)) as caught:
        work.using(**options).job(n=1)
    name = next(iter(options)).removesuffix("s")
    assert name == "meta" or name in str(caught.value)


def test_a_task_called_directly_runs_its_function() -> None:
    app = App("postgresql://nowhere")

    @app.task()
    def double(n: int) -> int:
        return 2 * n

    @app.task()
    async def triple(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert asyncio.run(triple(4)) == 12


def test_a_task_keeps_its_name_and_its_words(work: "Task[..., None]") -> None:
    assert (work.__name__, work.__doc__) == ("work", "Do something.")
    assert repr(work) == "<Task 'work' queue='default'>"
    assert "work" in repr(work.job(n=1))


def test_arguments_that_do_not_fit_the_signature_are_refused_where_they_are_given(work: "Task[..., None]") -> None:
    calls: list[Callable[[], Any]] = [
        lambda: work.job(),
        lambda: work.job(1, 2),
        lambda: work.job(m=1),
        lambda: work.job("1"),
        lambda: work.job(1, n=1),
    ]
    for call in calls:
        with pytest.raises(PayloadError, match="work"):
            call()
