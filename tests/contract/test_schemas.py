"""B04: an installation lives in whatever schema, beside another, whatever the caller's session settings, and after a rename."""

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.jobs import Jobs
from tests.support.waiting import until
from tests.support.workers import running_worker

from samecommit import App
from samecommit.errors import ReadOnlyTransaction
from samecommit.storage.migrate import migrate
from samecommit.storage.query import quote_name

pytestmark = pytest.mark.pg15

SCHEMAS = ["jobs", "Order", "we\"ird; Sch'e%ma", "a\\b"]


def with_task(dsn: str, schema: str, ran: list[str]) -> App:
    app = App(dsn, schema=schema)

    @app.task()
    async def note(what: str) -> None:
        ran.append(f"{schema} {what}")

    return app


def call(app: App, **options: Any) -> Any:
    """Return the task of that application, with options."""
    return app._tasks["note"].using(**options)


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_b04a_any_name_serves_with_an_empty_path(empty_dsn: str, schema: str) -> None:
    dsn = make_conninfo(empty_dsn, options="-c search_path=")
    migrate(dsn, schema)
    ran: list[str] = []
    app = with_task(dsn, schema, ran)
    with psycopg.connect(dsn, autocommit=True) as conn:
        jobs = Jobs(conn, schema)
        async with running_worker(app):
            first = app.enqueue(call(app, unique="k").job("one"))
            await jobs.ended(first.id)
            replayed = jobs.value("SELECT id FROM $.replay(%s)", [first.id])
            await jobs.ended(replayed)
        for function in ("hold(%s, 'look')", "release(%s)", "cancel(%s)", "retry(%s)", "state_of(%s)"):
            assert jobs.value(f"SELECT $.{function}", first.id) == (
                "done" if "_of" in function or "re" in function else "too late"
            )
    assert ran == [f"{schema} one"] * 2


async def test_b04b_two_installations_in_one_database_know_nothing_of_each_other(empty_dsn: str) -> None:
    ran: list[str] = []
    apps = []
    for schema in ("first", "second"):
        migrate(empty_dsn, schema)
        apps.append(with_task(empty_dsn, schema, ran))
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        async with running_worker(apps[0]) as worker:
            other = apps[1].enqueue(call(apps[1], unique="k").job("waits"))
            own = apps[0].enqueue(call(apps[0], unique="k").job("runs"))
            assert own.created
            await Jobs(conn, "first").ended(own.id)
            await until(lambda: worker._bell.is_held, what="the first one's worker sleeps")
            async with running_worker(apps[1]):
                await Jobs(conn, "second").ended(other.id)
            slots = conn.execute(
                "SELECT hashoid('first.queue'::regclass) <> hashoid('second.queue'::regclass)"
            ).fetchone()
            assert slots == (True,)
        assert Jobs(conn, "first").count() == Jobs(conn, "second").count() == 1
    assert sorted(ran) == ["first runs", "second waits"]


def test_b04c_the_callers_settings_change_nothing(dsn: str, jobs: Jobs) -> None:
    app = with_task(dsn, "samecommit", [])
    with psycopg.connect(dsn) as conn:
        conn.execute("SET LOCAL search_path = ''")
        conn.execute("SET LOCAL DateStyle = 'German'")
        conn.execute("SET LOCAL IntervalStyle = 'sql_standard'")
        conn.execute("SET LOCAL TimeZone = 'Asia/Kathmandu'")
        conn.execute("SET LOCAL standard_conforming_strings = off")
        conn.execute("SET LOCAL default_transaction_read_only = on")  # of the transactions to come
        job = call(app, unique="k'\\", delay=60).enqueue(conn, "x")
        app.enqueue_many(conn, [call(app, unique="m'\\", delay=60).job("y")])
    assert jobs.row(job.id)["unique_key"] == "k'\\"
    assert jobs.value("SELECT bool_and(run_at - created_at BETWEEN interval '59 s' AND interval '61 s') FROM $.jobs")


def test_b04c_a_read_only_transaction_says_so(dsn: str) -> None:
    app = with_task(dsn, "samecommit", [])
    with psycopg.connect(dsn) as conn:
        conn.read_only = True
        with pytest.raises(ReadOnlyTransaction):
            call(app).enqueue(conn, "x")


async def test_b04d_after_a_rename_the_migration_makes_everything_work_again(empty_dsn: str) -> None:
    before, after = "until_today", 'af"ter'
    migrate(empty_dsn, before)
    kept = (old := with_task(empty_dsn, before, [])).enqueue(call(old, unique="k").job("kept"))
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(f"ALTER SCHEMA {before} RENAME TO {quote_name(after)}".encode())
        assert migrate(empty_dsn, after) == migrate(empty_dsn, after) == []
        ran: list[str] = []
        app = with_task(empty_dsn, after, ran)
        jobs = Jobs(conn, after)
        async with running_worker(app):
            await jobs.ended(kept.id)
            new = app.enqueue(call(app, unique="k").job("new"))
            await jobs.ended(new.id)
        jobs.all("SELECT $.make_day(%s::regclass, '2001-01-01')", f"{quote_name(after)}.body")
        stale = jobs.all(
            "SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = %s::regnamespace AND p.prosrc LIKE '%%until_today%%'",
            quote_name(after),
        )
    assert sorted(ran) == [f"{after} kept", f"{after} new"]
    assert stale == []
