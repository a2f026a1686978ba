import io
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest
from rich.console import Console
from tests.support.database import Database
from tests.support.pooler import behind, pooler

from samecommit.bench.run import Scale, measures, run
from samecommit.errors import ConfigError

QUICK = (
    "drain",
    "latency",
    "late",
    "enqueue",
    "payloads",
    "strangers",
    "lanes",
    "depth",
    "promoter",
    "workers",
    "emit",
    "outbox",
)


def schemas(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [
            row[0] for row in conn.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'samecommit_bench%'")
        ]


def test_an_unknown_measurement_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown measurement 'speed': one of drain, latency, .*outbox-backlog"):
        run(["speed"], dsn=None)


def test_every_measurement_has_a_name_in_the_command_s_help() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "samecommit", "bench", "--help"], capture_output=True, text=True, check=True
    )
    assert not [name for name in measures(Scale()) if name not in shown.stdout]


def test_a_pooler_is_refused_whose_other_clients_would_be_left_with_the_settings(
    dsn: str, server: Database, port: int | None
) -> None:
    with nullcontext(port) if port else pooler(server.dsn_of("postgres")) as listening:
        address = dsn if port else behind(dsn, listening)
        with pytest.raises(ConfigError, match=r"goes through a pooler.*give the server's own address"):
            run(["lanes"], dsn=address, factor=0.01, console=Console(file=io.StringIO()))
    assert not schemas(dsn)


@pytest.mark.session("settings from the connect on")
def test_a_measurement_leaves_rows_and_no_schema(dsn: str, tmp_path: Path) -> None:
    report = run(["lanes"], dsn=dsn, json_path=tmp_path / "rows.json", factor=0.01, console=Console(file=io.StringIO()))
    assert report.is_complete and not schemas(dsn)
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["bar"] for row in rows] == [2.0] and rows[0]["value"] > 0


@pytest.mark.session("settings from the connect on")
def test_a_measurement_that_fails_is_told_and_the_next_one_goes_on(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("samecommit.bench.depth.strangers", broken)
    report = run(["strangers", "lanes"], dsn=dsn, factor=0.01, console=Console(file=io.StringIO()))
    assert not report.is_complete
    assert (report.rows[0].group, report.rows[0].note) == ("strangers", "RuntimeError: no luck")
    assert report.rows[1].group == "depth" and not schemas(dsn)


@pytest.mark.slow
@pytest.mark.pg15
@pytest.mark.session("settings from the connect on")
@pytest.mark.parametrize("name", QUICK)
def test_each_measurement_works_on_a_database_of_its_user(dsn: str, tmp_path: Path, name: str) -> None:
    report = run([name], dsn=dsn, factor=0.005, plots=tmp_path, console=Console(file=io.StringIO()))
    assert report.is_complete, [row.note for row in report.rows if row.note]
    assert report.rows and not schemas(dsn)


@pytest.mark.session("settings from the connect on")
def test_an_interrupted_run_is_not_complete(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("samecommit.bench.depth.idle_lanes", interrupted)
    report = run(["lanes"], dsn=dsn, factor=0.01, console=Console(file=io.StringIO()))
    assert (report.is_interrupted, report.is_complete) == (True, False)
    assert not schemas(dsn)


@pytest.mark.slow
@pytest.mark.session("settings from the connect on")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_shows_what_there_is_and_leaves_nothing(
    dsn: str, tmp_path: Path, number: signal.Signals
) -> None:
    rows = tmp_path / "rows.json"
    command = [sys.executable, "-m", "samecommit", "bench", "lanes", "polling", "--dsn", dsn, "--json", str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}) as bench:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not conn.execute(
                "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'samecommit claim%'"
            ).fetchone():
                assert bench.poll() is None
        bench.send_signal(number)
        out, _ = bench.communicate(timeout=60)
    assert bench.returncode == 130
    assert "empty look at 50 queues" in out and "interrupted" in out
    assert json.loads(rows.read_text())["rows"] and not schemas(dsn)
