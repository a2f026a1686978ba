import re
import subprocess
import sys
from pathlib import Path

import click
import psycopg
import pytest
from tests.cli.conftest import Samecommit

from samecommit import errors
from samecommit.cli.failure import Exit, Refused, explain, mask
from samecommit.cli.root import COMMANDS
from samecommit.cli.root import samecommit as group
from samecommit.storage.query import migration_files

STATES = {"ready", "scheduled", "retrying", "running", "unknown", "open", "paused", "working"}


def test_every_command_can_be_loaded_and_says_what_it_does(samecommit: Samecommit) -> None:
    for name in [*COMMANDS, "version"]:
        told = samecommit(name, "--help")
        assert told.status == 0 and f"samecommit {name}" in told.out
        assert "--json" in told.out or name == "bench", name


def test_without_a_command_it_shows_the_commands(samecommit: Samecommit) -> None:
    told = samecommit()
    assert told.status == 2
    assert all(name in told.out + told.err for name in COMMANDS)


def test_the_version_for_people_and_programs(samecommit: Samecommit) -> None:
    import samecommit as package

    assert samecommit("version").out == f"samecommit {package.__version__}\n"
    assert samecommit("version", "--json").data["version"] == package.__version__


def test_a_wrong_command_is_one_line_and_says_where_to_look(samecommit: Samecommit) -> None:
    told = samecommit("works")
    assert told.status == 2
    assert told.err.startswith("samecommit: no such command 'works'") and "--help" in told.err
    assert told.err.count("\n") == 1 and not told.out


def test_an_error_has_a_form_for_programs_too(samecommit: Samecommit) -> None:
    told = samecommit("jobs", "--limit", "none", "--json")
    assert (told.status, told.answer["ok"], told.answer["exit"]) == (2, False, 2)
    assert told.answer["error"].keys() == {"type", "message"} and not told.err


def test_debug_shows_the_traceback(samecommit: Samecommit) -> None:
    assert "Traceback" not in samecommit("jobs", "--page", "x", "--dsn", "host=/nowhere").err
    assert "Traceback" in samecommit("jobs", "--page", "x", "--dsn", "host=/nowhere", "--debug").err


@pytest.mark.parametrize("dsn", ["postgres:hunter2", "postgresql://me:hunter2@%zz/x", "password='hunter2"])
def test_a_broken_dsn_is_not_repeated(samecommit: Samecommit, monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    told = samecommit("jobs", "--dsn", dsn)
    assert told.status == 2 and "--dsn is no connection string" in told.err and "hunter2" not in told.err
    monkeypatch.setenv("SAMECOMMIT_DSN", dsn)
    told = samecommit("jobs")
    assert told.status == 2 and "SAMECOMMIT_DSN is no connection string" in told.err and "hunter2" not in told.err


def test_a_database_that_is_not_there_is_unavailable(samecommit: Samecommit) -> None:
    told = samecommit("queues", "--dsn", "postgresql://me:hunter2@127.0.0.1:1/x")
    assert told.status == Exit.UNAVAILABLE
    assert told.err.count("\n") == 1 and "--dsn" in told.err and "hunter2" not in told.err


def test_a_database_without_the_schema_says_what_to_run(samecommit: Samecommit, empty_dsn: str) -> None:
    for command in (["jobs"], ["queues", "why", "x"], ["enqueue", "greet"]):
        told = samecommit(*command, "--dsn", empty_dsn)
        assert told.status == Exit.UNAVAILABLE and "run samecommit migrate" in told.err, told


def test_the_schema_can_be_given_once_for_all_commands(
    on_database: Samecommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMECOMMIT_SCHEMA", "elsewhere")
    assert "'elsewhere'" in on_database("jobs").err
    assert on_database("migrate").status == 0
    assert on_database("queues", "create", "leads").status == 0
    assert "leads" in on_database("queues").out
    assert "leads" not in on_database("queues", "--schema", "samecommit").out
    monkeypatch.setenv("SAMECOMMIT_SCHEMA", "x" * 64)
    assert on_database("jobs").status == 2


def test_the_pg_variables_are_the_last_resort(
    samecommit: Samecommit, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    for name, variable in {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}.items():
        monkeypatch.setenv(variable, str(parts[name]))
    assert samecommit("queues", "--json").data[0]["name"] == "default"


def test_a_groups_database_is_that_of_its_commands(samecommit: Samecommit, dsn: str) -> None:
    assert samecommit("queues", "--dsn", dsn, "create", "a").status == 0
    assert samecommit("queues", "--dsn", "host=/nowhere", "create", "--dsn", dsn, "b").status == 0
    assert samecommit("queues", "--dsn", dsn, "--schema", "other", "create", "a").status == Exit.UNAVAILABLE


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    script = f"{sys.executable} -m samecommit sql | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_is_the_command_too() -> None:
    done = subprocess.run([sys.executable, "-m", "samecommit", "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("samecommit ")


def test_listing_commands_imports_none_of_them() -> None:
    code = "import samecommit.cli, sys; print(*sorted(m for m in sys.modules if m.startswith('samecommit.')))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {f"samecommit.cli.{name}" for name in COMMANDS} & set(shown)
    assert "samecommit.worker.worker" not in shown and "samecommit.demo" not in shown


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ConfigError("x"), Exit.USAGE),
        (errors.DependencyMissing("x"), Exit.USAGE),
        (errors.AppNotFound("x"), Exit.USAGE),
        (errors.UnknownJob("x"), Exit.REFUSED),
        (errors.UnknownQueue("x"), Exit.REFUSED),
        (Refused("x"), Exit.REFUSED),
        (errors.SchemaTooOld("x"), Exit.UNAVAILABLE),
        (errors.EmbeddedError("x"), Exit.FAILED),
        (psycopg.OperationalError("x"), Exit.UNAVAILABLE),
        (psycopg.errors.InsufficientPrivilege("x"), Exit.REFUSED),
        (psycopg.errors.UndefinedFunction("x"), Exit.UNAVAILABLE),
        (psycopg.errors.DivisionByZero("x"), Exit.FAILED),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (ZeroDivisionError("x"), Exit.FAILED),
        (FileNotFoundError(2, "no such file", "leads.csv"), Exit.FAILED),
    ],
)
def test_every_kind_of_error_has_its_status(error: BaseException, status: Exit) -> None:
    kind, message, found = explain(error)
    assert found == status and message and "\n" not in message and kind


def test_passwords_are_masked() -> None:
    _, message, _ = explain(psycopg.OperationalError("no route to postgresql://me:hunter2@db/x"))
    assert "no route" in message and "hunter2" not in message
    assert "hunter2" not in mask("cannot reach postgresql://me:hunter2@db/x")
    assert "hunter2" not in mask("bad option: password=hunter2 host=db")
    assert "hunter2" not in mask("bad option: password = 'hunter2 and more' host=db")
    assert mask("https://db/x?y=1") == "https://db/x?y=1"


def test_the_group_takes_its_names_from_one_place() -> None:
    assert set(group.list_commands(click.Context(group))) == {*COMMANDS, "version"}


def test_every_command_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"| `{name}` |" in page and f".. click:: samecommit.cli.{name}:{name}\n" in page, name


def test_every_answer_of_why_is_explained() -> None:
    functions = next(text for _, name, text in migration_files() if name == "0002_functions")
    answers = functions[functions.index('FUNCTION :"schema".why_line') :]
    codes = set(re.findall(r"(?:SELECT \d+, |, |THEN |ELSE )'([a-z]+(?:_[a-z]+)*)'", answers)) - {"schema"}
    page = (Path(__file__).parents[2] / "docs" / "operations" / "why-is-this-not-running.md").read_text(
        encoding="utf-8"
    )
    assert "not_due" in codes and "kind_cooling" in codes and "empty" in codes
    assert not {code for code in codes if f"`{code}`" not in page} - STATES
