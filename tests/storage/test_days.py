"""Bodies that are written once, and the days of history that are made, missed, kept and dropped."""

import asyncio
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.engine import Actor, enqueue, run
from tests.support.jobs import Jobs

from samecommit import WorkerConfig
from samecommit.maintenance.retention import Retention
from samecommit.storage.link import AsyncLink, LinkBusy, LinkDown
from samecommit.storage.query import statement

pytestmark = pytest.mark.pg15

LARGE = {"text": "x" * 3000, "noise": [n * 7919 % 10007 for n in range(2000)]}


@pytest.fixture
def actor(conn: psycopg.Connection[Any]) -> Actor:
    return Actor(conn).register()


def days_of(jobs: Jobs, parent: str) -> list[str]:
    return [
        row[0]
        for row in jobs.all(
            "SELECT right(i.inhrelid::regclass::text, 8) FROM pg_inherits AS i "
            "WHERE i.inhparent = format('samecommit.%%I', %s::text)::regclass ORDER BY 1",
            parent,
        )
    ]


def drop_day(jobs: Jobs, parent: str, day: date) -> None:
    jobs.all(f"DROP TABLE $.{parent}_{day:%Y%m%d}")


def today() -> date:
    return datetime.now(UTC).date()


# -------------------------------------------------------------------------------------------------------------- bodies


def test_a_large_payload_is_stored_once_and_shown_as_if_it_were_in_the_job(jobs: Jobs) -> None:
    (job_id,) = enqueue(jobs, payload=Jsonb(LARGE))
    assert jobs.all("SELECT payload IS NULL FROM $.job") == [(True,)]
    assert jobs.all("SELECT job_id, payload FROM $.body") == [(job_id, LARGE)]
    assert jobs.row(job_id)["payload"] == LARGE


@pytest.mark.parametrize("end", ["finish", "cancel", "age"])
def test_no_end_writes_a_body_again(jobs: Jobs, actor: Actor, end: str) -> None:
    (job_id,) = enqueue(jobs, payload=Jsonb(LARGE))
    version = jobs.all("SELECT tableoid, ctid, xmin::text FROM $.body")
    match end:
        case "finish":
            assert actor.finish(actor.claim()) == [job_id]
        case "cancel":
            jobs.all("SELECT $.cancel(%s)", job_id)
        case _:
            actor.settle(actor.claim(), "failed", "failed")
            run(actor.conn, "chore/age_failed", age_seconds=-1.0, room=10)
    assert jobs.value("SELECT count(*) FROM $.job") == 0
    assert jobs.all("SELECT payload IS NULL FROM $.job_history") == [(True,)]
    assert jobs.all("SELECT tableoid, ctid, xmin::text FROM $.body") == version
    assert jobs.row(job_id)["payload"] == LARGE


def test_the_wal_of_a_finish_does_not_grow_with_the_body(jobs: Jobs, actor: Actor) -> None:
    def finish_bytes(payload: dict[str, Any]) -> int:
        enqueue(jobs, payload=Jsonb(payload))
        pairs = actor.claim()
        jobs.all("SELECT pg_advisory_lock(1)")
        before = jobs.value("SELECT pg_current_wal_insert_lsn()")
        actor.finish(pairs)
        return int(jobs.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", before))

    finish_bytes({})
    noise = {"noise": [n * 7919 % 1000003 for n in range(30_000)]}
    assert min(finish_bytes(noise) for _ in range(5)) < 20_000


# ---------------------------------------------------------------------------------------------------------------- days


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Kiritimati", "Asia/Kathmandu", "UTC"])
def test_the_bounds_of_a_day_are_utc_whatever_the_session_thinks(dsn: str, jobs: Jobs, zone: str) -> None:
    day = today() + timedelta(days=60)
    with psycopg.connect(dsn, autocommit=True, options=f"-c TimeZone={zone}") as there:
        for offset in (0, 1):
            there.execute("SELECT samecommit.make_day('samecommit.job_history_2', %s)", [day + timedelta(days=offset)])
    jobs.all("SET TimeZone = 'UTC'")
    bounds = jobs.value(
        "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = format('samecommit.%%I', %s::text)::regclass",
        f"job_history_2_{day:%Y%m%d}",
    )
    wanted = [f"'{one} 00:00:00+00'" for one in (day, day + timedelta(days=1))]
    assert bounds == f"FOR VALUES FROM ({wanted[0]}) TO ({wanted[1]})"


def test_of_several_that_make_one_day_one_makes_it(dsn: str, jobs: Jobs) -> None:
    day = today() + timedelta(days=60)
    start = threading.Barrier(4)
    answers: list[bool] = []
    errors: list[BaseException] = []

    def make() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            start.wait()
            try:
                row = conn.execute("SELECT samecommit.make_day('samecommit.body', %s)", [day]).fetchone()
            except psycopg.Error as error:
                errors.append(error)
            else:
                assert row is not None
                answers.append(row[0])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(answers) == [False, False, False, True]


def test_the_days_ahead_are_made_once(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    before = days_of(jobs, "attempt")
    assert before[0] == f"{today() - timedelta(days=1):%Y%m%d}"
    assert before[-1] == f"{today() + timedelta(days=14):%Y%m%d}"
    drop_day(jobs, "attempt", today() + timedelta(days=3))
    made = run(conn, "chore/make_days", ahead=20)[0][0]
    parents = jobs.value(
        "SELECT count(*) FROM pg_partitioned_table AS p JOIN pg_class AS c ON c.oid = p.partrelid "
        "WHERE c.relnamespace = 'samecommit'::regnamespace AND p.partstrat = 'r'"
    )
    assert made == 1 + 6 * parents
    assert run(conn, "chore/make_days", ahead=20)[0][0] == 0


def test_no_partitioned_table_has_a_default_partition(jobs: Jobs) -> None:
    assert jobs.value("SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0") == 0


def test_making_a_day_waits_for_no_reader_and_no_writer(dsn: str, jobs: Jobs, actor: Actor) -> None:
    enqueue(jobs, 2)
    with psycopg.connect(dsn) as other:
        other.execute("SELECT count(*) FROM samecommit.job_history")
        actor.finish(actor.claim(1), on=other)
        jobs.all("SET lock_timeout = '2s'")
        assert run(actor.conn, "chore/make_days", ahead=16)[0][0] > 0


# ----------------------------------------------------------------------------------------------------------- retention


async def retention(dsn: str, config: WorkerConfig | None = None, link: AsyncLink | None = None) -> None:
    link = link or AsyncLink(dsn, "samecommit", "test")
    try:
        await Retention(link, config or WorkerConfig()).run()
    finally:
        await link.close()


def make_old_days(jobs: Jobs, *ages: int) -> None:
    for age in ages:
        for parent in ("job_history_1", "job_history_2", "job_history_3", "attempt", "body"):
            jobs.all("SELECT $.make_day(%s, %s)", f"samecommit.{parent}", today() - timedelta(days=age))


def ages_of(jobs: Jobs, parent: str) -> list[int]:
    days = [datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).date() for day in days_of(jobs, parent)]
    return sorted((age for day in days if (age := (today() - day).days) > 1), reverse=True)


def test_each_class_keeps_its_days_and_drops_the_older_ones(dsn: str, jobs: Jobs) -> None:
    make_old_days(jobs, 2, 7, 8, 90, 91, 100, 101)
    asyncio.run(retention(dsn, WorkerConfig(retention_days=(1, 7, 90), failed_age_days=10)))
    assert ages_of(jobs, "job_history_1") == []
    assert ages_of(jobs, "job_history_2") == [7, 2]
    assert ages_of(jobs, "job_history_3") == [90, 8, 7, 2]
    assert ages_of(jobs, "attempt") == [90, 8, 7, 2]
    assert ages_of(jobs, "body") == [100, 91, 90, 8, 7, 2], "what failed enters the history ten days after its enqueue"
    left = jobs.value("SELECT count(*) FROM pg_class WHERE relname ~ %s", f"_{today() - timedelta(days=101):%Y%m%d}")
    assert left == 0, "a detached day is dropped as well"


class CutOff(AsyncLink):
    """Loses its connection when a day is detached and not yet dropped."""

    async def define(self, label: str, **names: str) -> None:
        if label == "chore/drop_day":
            raise LinkDown("cut off")
        await super().define(label, **names)


def test_a_day_that_was_detached_and_not_dropped_is_dropped_by_the_next_turn(dsn: str, jobs: Jobs) -> None:
    make_old_days(jobs, 200, 201, 5)
    kept = f"job_history_3_{today() - timedelta(days=201):%Y%m%d}"
    jobs.all(f"ALTER TABLE $.job_history_3 DETACH PARTITION $.{kept}")
    jobs.all(
        "CREATE TABLE $.job_history_3_20990231 (); CREATE TABLE $.job_history_3_copy (); CREATE TABLE $.a_20200101 ()"
    )
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'samecommit'::regnamespace AND relkind = 'r'"
    for _ in range(5):
        with pytest.raises(LinkDown):
            asyncio.run(retention(dsn, link=CutOff(dsn, "samecommit", "test")))
    left = {f"{parent}_{today() - timedelta(days=200):%Y%m%d}" for parent in ("attempt", "body", "job_history_1")}
    assert left & {name for (name,) in jobs.all(tables)}
    asyncio.run(retention(dsn))
    names = {name for (name,) in jobs.all(tables)}
    assert not left & names
    assert {kept, "job_history_3_20990231", "job_history_3_copy", "a_20200101"} <= names, (
        "nobody detached these to drop them"
    )
    assert ages_of(jobs, "job_history_3") == [5]


class InUse(AsyncLink):
    """Somebody else works on every table of which a day is to be detached."""

    async def define(self, label: str, **names: str) -> None:
        if label.startswith("chore/detach_day"):
            raise LinkBusy("in use")
        await super().define(label, **names)


def test_a_day_that_a_person_takes_out_after_a_turn_could_not_is_kept(dsn: str, jobs: Jobs) -> None:
    make_old_days(jobs, 200)
    with pytest.raises(LinkBusy):
        asyncio.run(retention(dsn, link=InUse(dsn, "samecommit", "test")))
    kept = f"attempt_{today() - timedelta(days=200):%Y%m%d}"  # the first that the turn tried
    jobs.all(f"ALTER TABLE $.attempt DETACH PARTITION $.{kept}")
    asyncio.run(retention(dsn))
    assert jobs.value("SELECT to_regclass(%s)::text", f"samecommit.{kept}") == f"samecommit.{kept}"


def test_a_day_that_a_live_job_needs_is_kept(dsn: str, jobs: Jobs) -> None:
    make_old_days(jobs, 125, 123, 121)
    (job_id,) = enqueue(jobs, payload=Jsonb(LARGE))
    created = datetime.now(UTC) - timedelta(days=123)
    jobs.all("UPDATE $.job SET created_at = %s WHERE id = %s", created, job_id)
    jobs.all("UPDATE $.body SET created_at = %s WHERE job_id = %s", created, job_id)
    asyncio.run(retention(dsn))
    assert jobs.row(job_id)["payload"] == LARGE
    assert 123 in ages_of(jobs, "body")
    assert 125 not in ages_of(jobs, "body")
    assert ages_of(jobs, "job_history_3") == []
    jobs.all("SELECT $.cancel(%s)", job_id)
    asyncio.run(retention(dsn))
    assert ages_of(jobs, "body") == ages_of(jobs, "attempt") == []


def test_days_that_a_live_job_behind_many_others_needs_are_kept(
    dsn: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samecommit.maintenance.retention._ROOM", 2)
    make_old_days(jobs, 125, 123, 121)
    *_, old = enqueue(jobs, 4)  # the last of a roomful
    jobs.all("UPDATE $.job SET created_at = created_at - interval '123 days' WHERE id = %s", old)
    asyncio.run(retention(dsn))
    assert (ages_of(jobs, "body"), ages_of(jobs, "attempt")) == ([123, 121], [123, 121])
    jobs.all("SELECT $.cancel(%s)", old)
    asyncio.run(retention(dsn))
    assert ages_of(jobs, "body") == ages_of(jobs, "attempt") == []


def test_the_question_for_old_days_reads_no_jobs(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    """Ten million of them are not read within the time that a statement has, and then no day of any table went."""
    query = statement("chore/old_days", "samecommit")
    values = query.bind({"parents": ["attempt", "body"], "days": [90, 120]})
    plan = psycopg.RawCursor(conn).execute("EXPLAIN " + query.text, values).fetchall()
    assert not [line for (line,) in plan if " on job " in line]


@pytest.mark.parametrize("trouble", ["read", "built on"])
def test_a_day_that_cannot_go_keeps_no_other_table_s_days(dsn: str, jobs: Jobs, trouble: str) -> None:
    make_old_days(jobs, 200, 201)
    first = f"attempt_{today() - timedelta(days=201):%Y%m%d}"
    with psycopg.connect(dsn) as report:
        if trouble == "read":
            report.execute("SELECT count(*) FROM samecommit.attempt")
        else:
            jobs.all(f"CREATE VIEW $.mine AS SELECT * FROM $.{first}")
        for _ in range(2):
            with pytest.raises((LinkBusy, psycopg.errors.DependentObjectsStillExist), match=first):
                asyncio.run(retention(dsn))
        others = ("body", "job_history_1", "job_history_2", "job_history_3")
        assert [ages_of(jobs, parent) for parent in others] == [[]] * 4
        assert ages_of(jobs, "attempt") == ([201, 200] if trouble == "read" else [])
    jobs.all("DROP VIEW IF EXISTS $.mine")
    asyncio.run(retention(dsn))
    assert ages_of(jobs, "attempt") == []
    assert jobs.value("SELECT to_regclass(%s)", f"samecommit.{first}") is None


def test_an_open_report_delays_the_drop_and_nobody_else(dsn: str, jobs: Jobs, actor: Actor) -> None:
    make_old_days(jobs, 20)
    enqueue(jobs, 1)
    with psycopg.connect(dsn) as report:
        report.execute("SELECT count(*) FROM samecommit.job_history")
        with pytest.raises(Exception, match=r"timeout|lock"):
            asyncio.run(retention(dsn))
        jobs.all("SET lock_timeout = '1s'")
        assert len(actor.finish(actor.claim())) == 1
        report.execute("SELECT count(*) FROM samecommit.job_history")
    asyncio.run(retention(dsn))
    assert ages_of(jobs, "job_history_1") == ages_of(jobs, "job_history_2") == []


# ------------------------------------------------------------------------------------------------------ missing a day


@pytest.mark.parametrize("missing", ["job_history_2", "attempt", "body"])
def test_a_job_whose_day_is_missing_is_finished_by_a_worker_all_the_same(dsn: str, jobs: Jobs, missing: str) -> None:
    from tests.support.workers import running_worker

    from samecommit import App, AsyncContext

    app = App(dsn)

    @app.task()
    async def work(ctx: AsyncContext, text: str) -> None:
        ctx.record(size=len(text))

    with psycopg.connect(dsn) as conn:
        job = work.enqueue(conn, text="x" * 5000)
    if missing == "body":
        jobs.all("UPDATE $.job SET payload = (SELECT payload FROM $.body)")
    drop_day(jobs, missing, today())

    async def go() -> None:
        async with running_worker(app, chores=False):
            await jobs.ended(job.id)

    asyncio.run(go())
    if missing != "body":
        assert f"{today():%Y%m%d}" in days_of(jobs, missing)
