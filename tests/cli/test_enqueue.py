import io
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.conftest import Samecommit
from tests.support.jobs import Jobs


def test_arguments_are_json_or_text(on_database: Samecommit, jobs: Jobs) -> None:
    pairs = {
        "n": "42",
        "name": "Ann",
        "quoted": '"42"',
        "list": "[1, 2]",
        "none": "null",
        "equation": "a=b",
        "empty": "",
    }
    stored = on_database("enqueue", "greet", *(f"--arg={name}={value}" for name, value in pairs.items()), "--json").data
    payload = jobs.row(stored["id"])["payload"]
    assert payload == {
        "n": 42,
        "name": "Ann",
        "quoted": "42",
        "list": [1, 2],
        "none": None,
        "equation": "a=b",
        "empty": "",
    }


def test_pairs_go_over_a_payload(
    on_database: Samecommit, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload.json").write_text('{"a": 1, "b": 1}')
    monkeypatch.setattr("sys.stdin", io.StringIO('{"b": 3}'))
    for source in ('{"a": 1, "b": 1}', f"@{tmp_path / 'payload.json'}"):
        job_id = on_database("enqueue", "greet", "--payload", source, "--arg", "b=2", "--json").data["id"]
        assert jobs.row(job_id)["payload"] == {"a": 1, "b": 2}
    job_id = on_database("enqueue", "greet", "--payload", "-", "--json").data["id"]
    assert jobs.row(job_id)["payload"] == {"b": 3}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--arg", "nothing"], "give name=value"),
        (["--arg", "x={1"], "begins like JSON"),
        (["--payload", "[1]"], "no JSON object"),
        (["--payload", "{"], "no JSON"),
        (["--payload", "@missing.json"], "missing.json"),
        (["--at", "soon"], "neither a span"),
        (["--expires-at", "2h"], "takes a time"),
        (["--priority", "200"], "priority"),
        (["--max-attempts", "0"], "max_attempts"),
    ],
)
def test_what_cannot_be_stored_is_wrong_usage(
    on_database: Samecommit, jobs: Jobs, arguments: list[str], says: str
) -> None:
    told = on_database("enqueue", "greet", *arguments)
    assert told.status in (1, 2) and says in told.err and told.err.count("\n") == 1
    assert jobs.count() == 0


def test_options_reach_the_job(on_database: Samecommit, jobs: Jobs) -> None:
    on_database("queues", "create", "mail")
    options = [
        "--queue",
        "mail",
        "--priority",
        "5",
        "--max-attempts",
        "3",
        "--tag",
        "a",
        "--tag",
        "b",
        "--effect-key",
        "e",
    ]
    options += ["--at", "2h", "--expires-at", "2999-01-01T00:00Z"]
    row = jobs.row(on_database("enqueue", "greet", *options, "--json").data["id"])
    assert (row["queue"], row["priority"], row["max_attempts"], row["tags"]) == ("mail", 5, 3, ["a", "b"])
    assert (row["effect_key"], row["shown_as"], row["expires_at"].year) == ("e", "scheduled", 2999)
    assert 7100 < (row["run_at"] - row["created_at"]).total_seconds() <= 7200


def test_a_time_without_a_zone_is_local(on_database: Samecommit, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        row = jobs.row(on_database("enqueue", "greet", "--at", "2999-06-01T09:00", "--json").data["id"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (row["run_at"].astimezone(row["created_at"].tzinfo).timestamp() / 3600) % 24 == 0


def test_a_key_holds_one_live_job(on_database: Samecommit) -> None:
    first = on_database("enqueue", "greet", "--unique", "k", "--json").data
    again = on_database("enqueue", "greet", "--unique", "k", "--json").data
    assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
    assert "there already" in on_database("enqueue", "greet", "--unique", "k").out


def test_a_key_may_have_a_window(on_database: Samecommit, jobs: Jobs) -> None:
    on_database("enqueue", "greet", "--unique", "k", "--unique-for", "12h")
    assert jobs.value("SELECT until_at - now() BETWEEN interval '11 hours' AND interval '12 hours' FROM $.unique_key")
    told = on_database("enqueue", "greet", "--unique", "k", "--unique-for", "2030-01-31T09:00")
    assert told.status == 2 and "--unique-for takes a span" in told.err
    assert on_database("enqueue", "greet", "--unique-for", "12h").status == 2
    assert jobs.count() == 1


def test_with_the_application_the_job_goes_where_its_own_code_would_put_it(
    on_database: Samecommit, conn: psycopg.Connection[Any], shop: str, tmp_path: Path
) -> None:
    module = tmp_path / f"{shop}.py"
    module.write_text(module.read_text().replace("App()", "App(schema='elsewhere')"))
    assert on_database("migrate", "--app", shop).status == 0
    assert on_database("enqueue", "greet", "--arg", "name=Ann", "--app", shop).status == 0
    assert conn.execute("SELECT kind FROM elsewhere.job").fetchall() == [("greet",)]
    assert conn.execute("SELECT kind FROM samecommit.job").fetchall() == []
    told = on_database("enqueue", "greet", "--arg", "name=Ann", "--app", shop, "--schema", "third")
    assert told.status == 2 and "--schema 'third' is not that of the application, 'elsewhere'" in told.err


def test_an_unknown_queue_is_refused(on_database: Samecommit) -> None:
    told = on_database("enqueue", "greet", "--queue", "gone")
    assert told.status == 3 and "unknown queue 'gone'" in told.err and "queues create" in told.err


def test_with_the_application_the_task_decides(on_database: Samecommit, jobs: Jobs, shop: str) -> None:
    on_database("queues", "create", "slow")
    row = jobs.row(on_database("enqueue", "boom", "--arg", "n=1", "--app", shop, "--json").data["id"])
    assert (row["queue"], row["max_attempts"]) == ("slow", 1)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["greet", "--arg", "name=Ann", "--arg", "times=x"], 2, "do not fit task 'greet', at $.times"),
        (["greet", "--arg", "who=Ann"], 2, "who"),
        (["greet"], 2, "name"),
        (["nope"], 3, "no task 'nope': it has boom, greet"),
    ],
)
def test_with_the_application_arguments_are_checked(
    on_database: Samecommit, jobs: Jobs, shop: str, arguments: list[str], status: int, says: str
) -> None:
    told = on_database("enqueue", *arguments, "--app", shop)
    assert told.status == status and says in told.err, told
    assert jobs.count() == 0
