"""What is peculiar to one driver, one framework or one caller."""

import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from tests.doors.kinds import django_setting, url_of
from tests.support.database import Database
from tests.support.jobs import Jobs

from samecommit import App
from samecommit.errors import PayloadError, ReadOnlyTransaction, SchemaMissing, UniqueConflict, UnsupportedConnection
from samecommit.storage.copying import Copier

pytestmark = pytest.mark.pg15
app = App()


@app.task()
def work(n: int) -> None: ...


@app.task()
def large(text: str) -> None: ...


def test_django_on_psycopg2_does_the_same(dsn: str) -> None:
    setting = {name: value for name, value in django_setting(dsn).items() if name != "ENGINE"}
    program = Path(__file__).with_name("django_on_psycopg2.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), json.dumps(setting)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "all as on psycopg 3"), done.stderr


async def test_a_codec_for_jsonb_on_asyncpg_does_not_double_the_encoding(dsn: str, jobs: Jobs) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        async with conn.transaction():
            found = await work.using(meta={"a": 1}).enqueue(conn, n=1)
            many = await app.enqueue_many(conn, [work.job(n=2)])
    finally:
        await conn.close()
    assert (jobs.row(found.id)["payload"], jobs.row(found.id)["meta"]) == ({"n": 1}, {"a": 1})
    assert jobs.row(many[0].id)["payload"] == {"n": 2}


class Base(sqlalchemy.orm.DeclarativeBase):
    pass


class Lead(Base):
    __tablename__ = "lead"
    id: sqlalchemy.orm.Mapped[int] = sqlalchemy.orm.mapped_column(primary_key=True)


@pytest.fixture
def engine(dsn: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(url_of(dsn, "psycopg"), poolclass=sqlalchemy.NullPool)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def test_a_session_is_flushed_first_unless_its_autoflush_is_off(engine: sqlalchemy.Engine) -> None:
    with sqlalchemy.orm.Session(engine) as session:
        lead = Lead(id=1)
        session.add(lead)
        with session.no_autoflush:
            work.enqueue(session, n=1)
            assert lead in session.new
        work.enqueue(session, n=1)
        assert lead not in session.new
        assert not sqlalchemy.inspect(lead).expired


def test_a_session_can_enqueue_with_the_rows_it_adds(engine: sqlalchemy.Engine, jobs: Jobs) -> None:
    with sqlalchemy.orm.Session(engine) as session, session.begin():
        session.add(Lead(id=2))
        found = work.enqueue(session, n=2)
    assert jobs.state(found.id) == "ready"
    assert jobs.value("SELECT count(*) FROM public.lead") == 1


def test_another_database_is_refused_by_name() -> None:
    with sqlalchemy.create_engine("sqlite://").connect() as conn, pytest.raises(UnsupportedConnection, match="sqlite"):
        work.enqueue(conn, n=1)


def test_what_is_no_connection_is_refused_with_what_is() -> None:
    import sqlite3

    conn = sqlite3.connect(":memory:")
    with pytest.raises(UnsupportedConnection, match=r"sqlite3\.Connection .*psycopg Connection.*django"):
        work.enqueue(conn, n=1)
    conn.close()


def test_a_pipeline_is_not_copied_into(dsn: str, jobs: Jobs) -> None:
    with psycopg.connect(dsn) as conn, conn.pipeline():
        one = work.enqueue(conn, n=1)
        many = app.enqueue_many(conn, (work.job(n=n) for n in range(5001)))
    assert jobs.state(one.id) == "ready"
    assert len(set(many.ids)) == 5001


def test_a_role_that_may_only_call_functions_is_not_copied_for(
    server: Database, dsn: str, conn: psycopg.Connection[Any], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Copier, "copy", None)
    producer = f"producer_{secrets.token_hex(4)}"
    server.execute(f"CREATE ROLE {producer} LOGIN")
    conn.execute(f"GRANT USAGE ON SCHEMA samecommit TO {producer}".encode())
    for name in ("enqueue_many", "enqueue"):
        conn.execute(f"GRANT EXECUTE ON FUNCTION samecommit.{name} TO {producer}".encode())
    with psycopg.connect(dsn, user=producer) as theirs:
        many = app.enqueue_many(theirs, (work.job(n=n) for n in range(5001)))
        one = work.enqueue(theirs, n=1)
    assert [jobs.state(many[-1].id), jobs.state(one.id)] == ["ready", "ready"]


@pytest.mark.parametrize("setting", ["search_path = ''", "search_path = evil, pg_catalog", "role = CURRENT_USER"])
def test_the_callers_settings_do_not_reach_us(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs, setting: str
) -> None:
    """B04 (c) and (e): another search_path, another role, hostile objects earlier in the path."""
    conn.execute("CREATE SCHEMA evil")
    for name in (
        "enqueue(jsonb)",
        "enqueue_many(jsonb)",
        "make_interval(float8)",
        "clock_timestamp()",
        "ring(oid, int)",
    ):
        conn.execute(f"CREATE FUNCTION evil.{name} RETURNS int LANGUAGE sql AS 'SELECT 1 / 0'".encode())
    conn.execute("CREATE TABLE evil.queue (id int, name text, retention int, max_attempts int)")
    with psycopg.connect(dsn) as producer:
        (me,) = producer.execute("SELECT current_user").fetchone() or ("",)
        producer.execute(f"SET LOCAL {setting.replace('CURRENT_USER', me)}".encode())
        found = work.using(delay=0.5).enqueue(producer, n=1)
        many = app.enqueue_many(producer, (work.job(n=n) for n in range(5001)))
    assert [jobs.state(found.id), jobs.state(many[0].id)] == ["ready", "ready"]


def test_a_read_only_transaction_is_named(dsn: str) -> None:
    """B04 (c)."""
    with psycopg.connect(dsn) as conn:
        conn.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(ReadOnlyTransaction, match="primary"):
            work.enqueue(conn, n=1)


@pytest.mark.parametrize("schema", ["jobs", "Order", 'we"ird; %s :x $1'])
async def test_any_schema_name_will_do(empty_dsn: str, schema: str) -> None:
    """B04 (a)."""
    elsewhere = App(empty_dsn, schema=schema)
    task = elsewhere.task(name="work")(work.definition.fn)
    elsewhere.migrate()
    engine = sqlalchemy.create_engine(url_of(empty_dsn, "psycopg2"), poolclass=sqlalchemy.NullPool)
    with psycopg.connect(empty_dsn) as plain, engine.begin() as second:
        task.enqueue(plain, n=1)
        task.enqueue(second, n=2)
        assert len(elsewhere.enqueue_many(plain, [task.job(n=n) for n in range(5001)])) == 5001
        assert len(elsewhere.enqueue_many(second, [task.job(n=3)])) == 1
    third = await asyncpg.connect(empty_dsn)
    async with third.transaction():
        await task.enqueue(third, n=4)
    await third.close()
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert Jobs(conn, schema).count("ready") == 5005


def test_where_nothing_is_installed_is_said(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn, pytest.raises(SchemaMissing, match="samecommit migrate"):
        work.enqueue(conn, n=1)


async def test_jobs_may_come_from_an_async_iterable(dsn: str, jobs: Jobs) -> None:
    async def given() -> AsyncIterator[Any]:
        for n in range(5001):
            yield work.job(n=n)

    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        many = await app.enqueue_many(conn, given())
    assert len(many) == jobs.count("ready") == 5001
    with psycopg.connect(dsn) as plain, pytest.raises(TypeError, match="plain iterable"):
        app.enqueue_many(plain, given())  # type: ignore[call-overload]


async def test_an_async_iterable_that_fails_leaves_nothing(dsn: str, jobs: Jobs) -> None:
    async def given() -> AsyncIterator[Any]:
        for n in range(5010):
            yield work.job(n=n) if n < 5005 else work.job(n="x")  # type: ignore[arg-type]

    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        with pytest.raises(PayloadError, match="job 5005") as caught:
            await app.enqueue_many(conn, given())
        assert caught.value.index == 5005
        kept = await work.enqueue(conn, n=1)
    assert jobs.count() == 1
    assert jobs.state(kept.id) == "ready"


def test_the_jobs_may_be_read_on_the_same_connection(dsn: str, jobs: Jobs) -> None:
    with psycopg.connect(dsn) as conn, conn.cursor("leads") as leads:
        leads.itersize = 100
        leads.execute("SELECT generate_series(1, 5100)")
        many = app.enqueue_many(conn, (work.job(n=n) for (n,) in leads))
    assert len(many) == jobs.count("ready") == 5100


@pytest.mark.parametrize("key", [None, "k"], ids=["by copy", "by function"])
def test_no_more_than_a_chunk_is_held(dsn: str, key: str | None) -> None:
    told = [0]
    ahead = 0

    def given() -> Iterator[Any]:
        nonlocal ahead
        for n in range(12_000):
            ahead = max(ahead, n - told[-1])
            yield (work if key is None else work.using(unique=f"{key}{n % 2000}")).job(n=n)

    with psycopg.connect(dsn) as conn:
        many = app.enqueue_many(conn, given(), progress=told.append)
    assert told == [0, 5000, 10_000, 12_000]
    assert ahead == 4999
    assert (len(many), many.created) == (12_000, 12_000 if key is None else 2000)


@pytest.mark.session("the doorbell")
def test_a_copied_batch_rings_once_for_each_queue_with_something_due(dsn: str, jobs: Jobs) -> None:
    jobs.all("SELECT $.create_queue('quiet')")
    jobs.all("SELECT $.create_queue('loud')")
    ids = [row[0] for row in jobs.all("SELECT id FROM $.queue ORDER BY id")]
    tasks = [work, work.using(queue="quiet", delay=60), work.using(queue="loud")]
    with psycopg.connect(dsn, autocommit=True) as worker, psycopg.connect(dsn) as conn:
        for queue_id in ids:
            worker.execute("SELECT pg_advisory_lock(hashoid('samecommit.queue'::regclass), %s)", [queue_id])
        worker.execute(b"LISTEN samecommit_%d" % jobs.value("SELECT '$.queue'::regclass::oid"))
        app.enqueue_many(conn, (tasks[n % 3].job(n=n) for n in range(5000)))
        conn.commit()
        told = [note.payload for note in worker.notifies(timeout=5, stop_after=2)]
        assert told == [str(ids[0]), str(ids[2])]
        assert list(worker.notifies(timeout=0.05)) == []


def test_large_payloads_make_smaller_chunks(dsn: str) -> None:
    told: list[int] = []
    with psycopg.connect(dsn) as conn:
        app.enqueue_many(conn, (large.job(text="x" * 1_000_000) for _ in range(10)), progress=told.append)
    assert told == [8, 10]


def test_no_jobs_need_no_transaction(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert list(app.enqueue_many(conn, [])) == []


def test_a_batch_takes_keys_in_one_order_and_tells_of_each(dsn: str, jobs: Jobs) -> None:
    given = [work.using(unique=str(n % 3)).job(n=n) for n in (5, 4, 3, 2, 1, 0)]
    with psycopg.connect(dsn) as conn:
        many = app.enqueue_many(conn, [*given, work.job(n=9)])
        assert [one.created for one in many] == [True, True, True, False, False, False, True]
        assert [one.id for one in many[3:6]] == [one.id for one in many[:3]]
        new = [work.using(unique=str(n), on_conflict="replace").job(n=n + 10) for n in (2, 1, 0, 3)]
        again = app.enqueue_many(conn, [*new, work.job(n=10)])
        assert [(one.created, one.replaced) for one in again] == [(False, True)] * 3 + [(True, False)] * 2
        assert again.created == 2
        rejecting = work.using(unique="1", on_conflict="reject").job(n=0)
        with pytest.raises(UniqueConflict, match=str(many[1].id)):
            app.enqueue_many(conn, [work.job(n=11), rejecting])
    assert sorted(row[0]["n"] for row in jobs.all("SELECT payload FROM $.jobs")) == [9, 10, 10, 11, 12, 13]


def test_what_enqueue_many_returns_is_a_sequence(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        many = app.enqueue_many(conn, [work.job(n=n) for n in range(3)])
    assert [many[-1], many[1]] == [list(many)[2], many[1:2][0]]
    assert many.ids == [one.id for one in many]
    assert repr(many) == "<EnqueuedMany 3 jobs, 3 of them new>"
    with pytest.raises(IndexError):
        many[3]
