import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.cli.conftest import Samecommit

from samecommit.storage.migrate import migrations, newest_version

NAMES = [migration.name for migration in migrations("samecommit")]


def test_a_plan_changes_nothing(samecommit: Samecommit, empty_dsn: str) -> None:
    for _ in range(2):
        told = samecommit("migrate", "--plan", "--dsn", empty_dsn, "--json")
        assert [step["name"] for step in told.data["pending"]] == NAMES
    assert "to apply to schema 'samecommit' of" in samecommit("migrate", "--plan", "--dsn", empty_dsn).out


def test_it_installs_once_and_says_so(samecommit: Samecommit, empty_dsn: str) -> None:
    told = samecommit("migrate", "--dsn", empty_dsn)
    assert told.status == 0 and all(name in told.out for name in NAMES)
    told = samecommit("migrate", "--dsn", empty_dsn)
    assert told.status == 0 and "was up to date already" in told.out
    assert samecommit("migrate", "--dsn", empty_dsn, "--json").data["applied"] == []
    assert "is up to date" in samecommit("migrate", "--dsn", empty_dsn, "--plan").out


def test_another_schema_is_another_installation(samecommit: Samecommit, dsn: str) -> None:
    schema = 'we"ird; Schema'
    assert len(samecommit("migrate", "--dsn", dsn, "--schema", schema, "--json").data["applied"]) == len(NAMES)
    assert samecommit("jobs", "--dsn", dsn, "--schema", schema, "--json").data == []


def test_a_schema_that_cannot_be_is_wrong_usage(samecommit: Samecommit, dsn: str) -> None:
    told = samecommit("migrate", "--dsn", dsn, "--schema", "pg_mine")
    assert told.status == 2 and "schema 'pg_mine' cannot be used" in told.err


@pytest.mark.parametrize("command", [("migrate",), ("migrate", "--sql"), ("jobs",), ("queues",)])
def test_an_empty_schema_is_refused_and_not_taken_for_the_usual_one(
    samecommit: Samecommit, empty_dsn: str, command: tuple[str, ...]
) -> None:
    told = samecommit(*command, "--dsn", empty_dsn, "--schema", "")
    assert told.status == 2 and "schema '' cannot be used" in told.err
    assert "to apply" in samecommit("migrate", "--dsn", empty_dsn, "--plan").out


@pytest.mark.parametrize("attrs", ["read-write", "any"])
def test_a_database_that_is_read_only_by_default_says_so_and_what_to_do(
    samecommit: Samecommit, empty_dsn: str, attrs: str
) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(f'ALTER DATABASE "{conn.info.dbname}" SET default_transaction_read_only = on'.encode())
    told = samecommit("migrate", "--dsn", make_conninfo(empty_dsn, target_session_attrs=attrs))
    assert told.status == 2
    assert "default_transaction_read_only = on" in told.err and "ALTER ROLE ... SET" in told.err


def test_the_sql_needs_no_database(samecommit: Samecommit) -> None:
    told = samecommit("migrate", "--sql", "--schema", "jobs", "--dsn", "host=/nowhere")
    assert told.status == 0 and 'CREATE TABLE "jobs".job (' in told.out and ':"schema"' not in told.out
    steps = samecommit("migrate", "--sql", "--json").data
    assert steps[-1]["version"] == newest_version()


def test_the_queues_of_an_application_are_made(
    samecommit: Samecommit, empty_dsn: str, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMECOMMIT_DSN", empty_dsn)
    assert samecommit("migrate", "--app", shop, "--json").data["queues"] == ["default", "slow"]
    assert [queue["name"] for queue in samecommit("queues", "--json").data] == ["default", "slow"]
    assert samecommit("enqueue", "boom", "--queue", "slow").status == 0
