"""A real worker, producer and operator, each as a user with its role and nothing else; and a schema with one plain owner."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.roles.conftest import Site
from tests.support.database import Database
from tests.support.jobs import Jobs
from tests.support.waiting import until
from tests.support.workers import running_worker

from samecommit import App, AsyncContext
from samecommit.errors import ConfigError
from samecommit.maintenance.retention import Retention
from samecommit.storage.link import AsyncLink
from samecommit.storage.migrate import migrate, migrations
from samecommit.storage.operate import Until
from samecommit.storage.operate_outbox import EventFilter, OutboxOperator
from samecommit.storage.roles import Role, keep_roles, make_roles, role_names, roles_script

pytestmark = pytest.mark.pg15


def with_task(dsn: str, schema: str = "samecommit") -> App:
    app = App(dsn, schema=schema)

    @app.task()
    async def greet(ctx: AsyncContext, name: str) -> str:
        if name == "":
            raise ValueError(name)
        async with ctx.transaction() as conn:
            await conn.execute("SELECT 1")
            await ctx.finish(conn, f"hello {name}")
        return ""

    return app


def task_of(app: App) -> Any:
    return app._tasks["greet"]


async def test_a_producer_enqueues_and_a_worker_works(site: Site) -> None:
    with site.connect() as conn:
        jobs = Jobs(conn)
        async with running_worker(with_task(site.dsn_of("worker")), concurrency=2):
            producer = with_task(site.dsn_of("producer"))
            first = producer.enqueue(task_of(producer).using(unique="k", unique_for=3600).job("you"))
            await jobs.ended(first.id)
            with site.connect("producer", autocommit=False) as caller:
                many = producer.enqueue_many(caller, [task_of(producer).job(str(n)) for n in range(20)])
            for job_id in many.ids:
                await jobs.ended(job_id)
            broken = producer.enqueue(task_of(producer).using(max_attempts=1, unique="b").job(""))
            await jobs.ended(broken.id, "failed")
        assert jobs.value("SELECT count(*) FROM $.worker") == 0
        assert jobs.row(first.id)["result"] == "hello you"


async def test_a_worker_makes_and_drops_days_as_the_maintainer(site: Site) -> None:
    old = (datetime.now(UTC) - timedelta(days=200)).date()
    with site.connect() as conn:
        conn.execute("SELECT samecommit.make_day('samecommit.job_history_2', %s)", [old])
        conn.execute("DROP TABLE samecommit.job_history_2_" + f"{datetime.now(UTC):%Y%m%d}")
        link = AsyncLink(site.dsn_of("worker"), "samecommit", "chores")
        config = with_task(site.dsn).worker_config
        await Retention(link, config).run()
        asked = await (await link.connection()).execute("SELECT current_user")
        assert await asked.fetchone() == (site.user("worker"),)
        await link.close()
        owners = dict(
            conn.execute(
                "SELECT relname, pg_get_userbyid(relowner) FROM pg_class "
                "WHERE relispartition AND relkind = 'r' AND relname LIKE 'job_history_2_%%'"
            ).fetchall()
        )
    assert f"job_history_2_{old:%Y%m%d}" not in owners
    assert owners[f"job_history_2_{datetime.now(UTC):%Y%m%d}"] == f"{site.prefix}_maintainer"


@pytest.mark.parametrize("role", ["producer", "operator", "viewer"])
async def test_a_worker_without_the_role_ends_at_once_instead_of_idling(site: Site, role: Role) -> None:
    with pytest.raises(pg.InsufficientPrivilege):
        await with_task(site.dsn_of(role)).worker().run()


def test_an_operator_may_operate_and_a_producer_may_not(site: Site) -> None:
    app = with_task(site.dsn_of("producer"))
    job_id = app.enqueue(task_of(app).job("you")).id
    calls = {
        "hold(%s, 'look')": "held",
        "release(%s)": "released",
        "state_of(%s)": "ready",
        "cancel(%s)": "cancelled",
        "retry(%s)": "retried",
    }
    with site.connect("producer") as producer, site.connect("operator") as operator, site.connect("viewer") as viewer:
        for call, answer in calls.items():
            for other in (producer, viewer):
                with pytest.raises(pg.InsufficientPrivilege, match="permission denied for function"):
                    other.execute(f"SELECT samecommit.{call}".encode(), [job_id])
            assert operator.execute(f"SELECT samecommit.{call}".encode(), [job_id]).fetchone() == (answer,)
        with pytest.raises(pg.InsufficientPrivilege):
            producer.execute("SELECT * FROM samecommit.replay(%s)", [[job_id]])
        assert len(operator.execute("SELECT * FROM samecommit.replay(%s)", [[job_id]]).fetchall()) == 1
        assert len(viewer.execute("SELECT payload FROM samecommit.jobs").fetchall()) == 2
        with pytest.raises(pg.InsufficientPrivilege, match="permission denied for view jobs"):
            producer.execute("SELECT * FROM samecommit.jobs")


def test_an_operator_may_look_after_the_outbox(site: Site) -> None:
    with site.connect() as conn:
        conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
        conn.execute("SELECT samecommit.emit('thing.done', '{}', 'a', 'first')")
        conn.execute("SELECT samecommit.emit('thing.done', '{}', 'a', 'second')")
    with OutboxOperator.connect(site.dsn_of("operator"), "samecommit") as operator:
        assert operator.status()[0]["waiting"] == 2
        numbers = operator.find(["first", "second"])
        assert operator.why("there", numbers["first"])[0]["state"] == "in line"
        operator.pause("there")
        operator.resume("there")
        assert operator.parked() == operator.doubts() == []
        assert operator.resolve("there", numbers["first"], "dropped") == "not found"
        assert operator.count_replay("there", EventFilter(keys=["a"]))["events"] == 0
        replay = operator.replay("there", EventFilter(types=["thing.*"]))
        assert replay["requested_by"] == site.user("operator")
        assert operator.cancel_replay(replay["id"])
        operator.remove("there")
    with site.connect("viewer") as viewer:
        assert viewer.execute("SELECT * FROM samecommit.destinations").fetchall() == []


def test_a_worker_may_compare_the_log_with_a_destination(site: Site) -> None:
    with site.connect() as conn:
        conn.execute("SELECT samecommit.emit('thing.done', '{}', 'a')")
        conn.execute("SELECT samecommit.add_destination('there', 'stream', 1, '{*}')")
    chosen = EventFilter(since=Until(seconds=3600))
    with OutboxOperator.connect(site.dsn_of("worker"), "samecommit") as worker:
        assert [row["key"] for rows in worker.had("there", chosen) for row in rows] == ["a"]
        assert worker.installation() and worker.status() and worker.replays() == []
    operator = OutboxOperator.connect(site.dsn_of("operator"), "samecommit")
    with operator, pytest.raises(pg.InsufficientPrivilege):
        list(operator.had("there", chosen))


def test_making_the_roles_again_changes_nothing_and_mends_what_was_changed(site: Site) -> None:
    with site.connect() as conn:
        acls = "SELECT array_agg((relname, relacl::text, relowner) ORDER BY relname)::text FROM pg_class WHERE relnamespace = 'samecommit'::regnamespace"
        make_roles(site.dsn, "samecommit", site.prefix)
        before = conn.execute(acls).fetchone()
        conn.execute(f'GRANT SELECT ON samecommit.job TO "{site.prefix}_producer"'.encode())
        conn.execute("CREATE TABLE samecommit.added (id int)")
        assert conn.execute(acls).fetchone() != before
        with conn.transaction():
            conn.execute("DROP TABLE samecommit.added")
            keep_roles(conn, "samecommit")
        assert conn.execute(acls).fetchone() == before


def test_a_migration_gives_the_roles_what_is_new(site: Site) -> None:
    with site.connect() as conn:
        conn.execute("DELETE FROM samecommit.migration WHERE version = (SELECT max(version) FROM samecommit.migration)")
        conn.execute("DROP VIEW samecommit.jobs")
        conn.execute("CREATE VIEW samecommit.jobs AS SELECT 1 AS id")
        with conn.transaction():
            keep_roles(conn, "samecommit")
        assert conn.execute(
            "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'samecommit.jobs'::regclass"
        ).fetchone() == (f"{site.prefix}_owner",)
    with site.connect("viewer") as viewer:
        assert viewer.execute("SELECT id FROM samecommit.jobs").fetchone() == (1,)


def test_a_migration_that_is_cut_off_before_the_roles_have_what_is_new_is_not_applied(
    dba_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [step for step in migrations("samecommit") if step.version <= 8]
    with monkeypatch.context() as patched:
        patched.setattr("samecommit.storage.migrate.migrations", lambda _: before)
        migrate(dba_dsn, "samecommit")
    names = make_roles(dba_dsn, "samecommit", "cut_off")
    producer = make_conninfo(dba_dsn, user="cut_off_producer_user")
    with psycopg.connect(dba_dsn, autocommit=True) as dba:
        dba.execute(f"CREATE ROLE cut_off_producer_user LOGIN IN ROLE {names['producer']}".encode())
    emit = "SELECT count(*) FROM samecommit.emit('lead.created')"
    with psycopg.connect(producer, autocommit=True) as conn:
        with monkeypatch.context() as patched:
            patched.setattr("samecommit.storage.migrate.keep_roles", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                migrate(dba_dsn, "samecommit")
        assert conn.execute(emit.encode()).fetchone() == (1,)
        assert migrate(dba_dsn, "samecommit") == migrations("samecommit")[len(before) :] != []
        assert conn.execute(emit.encode()).fetchone() == (1,)


def test_the_printed_script_does_what_make_roles_does(dba_dsn: str) -> None:
    migrate(dba_dsn, "samecommit")
    with psycopg.connect(dba_dsn, autocommit=True) as conn:
        conn.execute(roles_script("samecommit", "scripted").encode())
        acls = "SELECT array_agg((relname, relacl::text, relowner) ORDER BY relname)::text FROM pg_class WHERE relnamespace = 'samecommit'::regnamespace"
        before = conn.execute(acls).fetchone()
        make_roles(dba_dsn, "samecommit", "scripted")
        assert conn.execute(acls).fetchone() == before


def test_who_may_not_make_roles_is_told_what_to_do(dsn: str) -> None:
    with pytest.raises(
        ConfigError, match=r"may not make the roles .* has CREATEROLE, or give what `samecommit migrate --roles --sql`"
    ):
        make_roles(dsn, "samecommit", "refused")


@pytest.mark.parametrize("prefix", ["", "a\0b", "pg_x", "x" * 53])
def test_a_prefix_that_makes_no_names_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used for roles"):
        role_names(prefix)


def test_making_roles_beside_a_long_reader_stops_nobody_for_long(dba_dsn: str) -> None:
    migrate(dba_dsn, "jobs")
    names: list[dict[Role, str]] = []
    with psycopg.connect(dba_dsn) as reader, psycopg.connect(dba_dsn, autocommit=True) as claimer:
        reader.execute("SELECT FROM jobs.job_history")
        making = threading.Thread(target=lambda: names.append(make_roles(dba_dsn, "jobs")))
        making.start()
        claimer.execute("SET lock_timeout = '1s'")
        until_at = time.monotonic() + 3
        while time.monotonic() < until_at:
            for table in ("job", "claim", "worker", "job_history"):
                claimer.execute(f"SELECT FROM jobs.{table}".encode())  # waits behind whoever waits for more
            time.sleep(0.02)
        assert not names, "it cannot have what the reader holds"
        reader.rollback()
        making.join(30)
    assert names


def test_names_of_roles_are_quoted(dba_dsn: str) -> None:
    migrate(dba_dsn, "we\"ird; Sch'e%ma")
    names = make_roles(dba_dsn, "we\"ird; Sch'e%ma")
    with psycopg.connect(dba_dsn) as conn:
        found = conn.execute("SELECT count(*) FROM pg_roles WHERE rolname = ANY(%s)", [list(names.values())]).fetchone()
    assert found == (6,)


async def test_b23a_one_ordinary_role_that_owns_nothing_but_the_schema_is_enough(server: Database) -> None:
    with server.fresh(migrated=False) as address:
        name = conninfo_to_dict(address)["dbname"]
        server.execute("DROP ROLE IF EXISTS schema_owner_of_" + str(name))
        server.execute(f"CREATE ROLE schema_owner_of_{name} LOGIN")
        with psycopg.connect(address, autocommit=True) as conn:
            conn.execute("CREATE SCHEMA jobs")
        with psycopg.connect(make_conninfo(server.server.dsn_for(str(name))), autocommit=True) as superuser:
            superuser.execute(f"ALTER SCHEMA jobs OWNER TO schema_owner_of_{name}".encode())
        dsn = make_conninfo(address, user=f"schema_owner_of_{name}")
        migrate(dsn, "jobs")
        app = with_task(dsn, "jobs")
        with psycopg.connect(dsn, autocommit=True) as conn:
            assert conn.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone() == (False,)
            jobs = Jobs(conn, "jobs")
            async with running_worker(app, concurrency=2):
                job_id = app.enqueue(task_of(app).using(unique="k").job("you")).id
                await jobs.ended(job_id)
                broken = app.enqueue(task_of(app).using(max_attempts=1).job("")).id
                await jobs.ended(broken, "failed")
                await until(lambda: jobs.value("SELECT count(*) FROM $.chore WHERE finished_at IS NOT NULL") > 0)
