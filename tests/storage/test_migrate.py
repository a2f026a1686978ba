import threading
from typing import Any

import psycopg
import pytest
from tests.support.database import Database
from tests.support.jobs import Jobs

from samecommit import App
from samecommit.errors import ConfigError, SchemaMissing, SchemaTooNew, SchemaTooOld
from samecommit.storage.migrate import check_version, installed_version, migrate, migrations, newest_version, pending

pytestmark = pytest.mark.pg15

NAMES = [
    "samecommit",
    "we\"ird; Sch'e%ma",
    "Order",
    "a.b",
    "back\\slash",
    "$1 :name %s {0}",
    "x" * 63,
    "é" * 31,
    "🦆" * 15,
    "select",
]


@pytest.mark.parametrize("schema", NAMES)
def test_any_name_will_do_for_the_schema(empty_dsn: str, schema: str) -> None:
    app = App(empty_dsn, schema=schema)

    @app.task()
    def work(n: int) -> None: ...

    app.migrate()
    with psycopg.connect(empty_dsn) as conn:
        job = work.enqueue(conn, n=1)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert Jobs(conn, schema).row(job.id)["payload"] == {"n": 1}
        homes = conn.execute(
            "SELECT DISTINCT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE c.relowner = current_user::regrole AND n.nspname NOT LIKE 'pg\\_%'"
        ).fetchall()
    assert homes == [(schema,)]


@pytest.mark.parametrize("schema", ["", "x" * 64, "é" * 32, "a\0b", "pg_mine"])
def test_a_name_that_postgres_would_cut_or_keep_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match=r"schema .* cannot be used"):
        App("", schema=schema)


def test_the_first_run_applies_everything_and_the_second_nothing(empty_dsn: str) -> None:
    assert [step.version for step in migrate(empty_dsn, "samecommit")] == [m.version for m in migrations("samecommit")]
    assert migrate(empty_dsn, "samecommit") == []
    with psycopg.connect(empty_dsn) as conn:
        assert installed_version(conn, "samecommit") == newest_version()
        check_version(conn, "samecommit")


def test_of_two_at_once_one_applies_and_the_other_finds_it_done(empty_dsn: str) -> None:
    applied: list[int] = []
    errors: list[BaseException] = []
    start = threading.Barrier(3)

    def go() -> None:
        start.wait()
        try:
            applied.append(len(migrate(empty_dsn, "samecommit")))
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(applied) == [0, 0, len(migrations("samecommit"))]


def test_two_installations_in_one_database_know_nothing_of_each_other(empty_dsn: str) -> None:
    for schema in ("left", "right"):
        migrate(empty_dsn, schema)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        left, right = Jobs(conn, "left"), Jobs(conn, "right")
        left.all("SELECT $.enqueue('work')")
        assert (left.count(), right.count()) == (1, 0)
        numbers = {one.value("SELECT value FROM $.setting WHERE name = 'installation'") for one in (left, right)}
        assert len(numbers) == 2


def test_what_is_pending_is_told_without_being_applied(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert pending(conn, "samecommit") == migrations("samecommit")
        assert installed_version(conn, "samecommit") == 0


def test_an_interrupted_migration_leaves_nothing_of_its_step(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *rest = migrations("samecommit")
    broken = type(second)(version=second.version, name=second.name, text=second.text + ";SELECT 1/0")
    with monkeypatch.context() as patched:
        patched.setattr("samecommit.storage.migrate.migrations", lambda _: [first, broken, *rest])
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(empty_dsn, "samecommit")
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert installed_version(conn, "samecommit") == first.version
    assert [step.version for step in migrate(empty_dsn, "samecommit")] == [second.version, *(m.version for m in rest)]


def set_version(conn: psycopg.Connection[Any], change: str) -> None:
    conn.execute(f"{change}".encode())


def test_a_schema_of_a_newer_package_is_refused(dsn: str, conn: psycopg.Connection[Any]) -> None:
    set_version(conn, "INSERT INTO samecommit.migration (version, name) VALUES (9999, 'later')")
    for refuse in (lambda: migrate(dsn, "samecommit"), lambda: check_version(conn, "samecommit")):
        with pytest.raises(SchemaTooNew, match=r"version 9999 .* upgrade the samecommit package"):
            refuse()


def test_an_older_schema_says_to_migrate(conn: psycopg.Connection[Any]) -> None:
    set_version(conn, f"DELETE FROM samecommit.migration WHERE version = {newest_version()}")
    with pytest.raises(SchemaTooOld, match="run samecommit migrate"):
        check_version(conn, "samecommit")


def test_a_missing_schema_names_the_schema_and_the_database(empty_dsn: str) -> None:
    told = r"schema 'samecommit' of database 'test_\d+': run samecommit migrate"
    with psycopg.connect(empty_dsn) as conn, pytest.raises(SchemaMissing, match=told):
        check_version(conn, "samecommit")


def test_a_role_that_owns_one_ready_made_schema_can_migrate(server: Database) -> None:
    with server.fresh(migrated=False) as dsn, psycopg.connect(dsn, autocommit=True) as owner:
        role = f"only_{owner.info.dbname}"
        server.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute(f"GRANT CONNECT ON DATABASE {owner.info.dbname} TO {role}".encode())
        owner.execute(b"REVOKE CREATE ON DATABASE " + owner.info.dbname.encode() + b" FROM PUBLIC")
        owner.execute(b"CREATE SCHEMA jobs")
        owner.execute(f"GRANT USAGE, CREATE ON SCHEMA jobs TO {role}".encode())
        as_role = dsn.replace("samecommit_test@", f"{role}@")
        assert len(migrate(as_role, "jobs")) == len(migrations("jobs"))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            migrate(as_role, "others")
        with psycopg.connect(as_role, autocommit=True) as conn:
            Jobs(conn, "jobs").all("SELECT $.enqueue('work')")
    server.execute(f"DROP OWNED BY {role}")


def test_nothing_that_is_installed_names_another_schema(dsn: str, conn: psycopg.Connection[Any]) -> None:
    moved = conn.execute(
        "SELECT p.proname FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'samecommit' AND p.prosecdef AND p.prosqlbody IS NULL AND p.proconfig IS NULL"
    ).fetchall()
    assert moved == [], "a SECURITY DEFINER function needs BEGIN ATOMIC or a fixed search_path"
