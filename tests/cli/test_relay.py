"""The relay as a process: started by its command, told by signals, and judged by its exit status and its lines."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.test_worker import Process
from tests.outbox.support import emit
from tests.support.waiting import wait_until

APP = """
from pathlib import Path
from samecommit import App, WorkerConfig
from samecommit.outbox.sinks.file import File

app = App(worker=WorkerConfig(poll_seconds=0.05))
app.stream("one", File("one.log"))
app.stream("two", File("two.log"))

@app.task()
def greet() -> None: ...
"""
Conn = psycopg.Connection[Any]


@pytest.fixture
def start(tmp_path: Path, dsn: str) -> Iterator[Any]:
    (tmp_path / "things.py").write_text(APP)
    processes: list[Process] = []

    def started(*arguments: str, dsn: str = dsn) -> Process:
        processes.append(Process(*arguments, cwd=tmp_path, dsn=dsn))
        return processes[-1]

    yield started
    for process in processes:
        process.close()


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_it_relays_runs_no_job_and_stops_cleanly_when_told(start: Any, tmp_path: Path, conn: Conn) -> None:
    relay = start("relay", "things:app")
    relay.wait_for("relays to ", 2)
    emit(conn, "a", 3)
    conn.execute("SELECT samecommit.create_queue('default')")
    conn.execute("SELECT samecommit.enqueue('greet')")
    wait_until(lambda: lines(tmp_path / "one.log") == lines(tmp_path / "two.log") == 3, 20)
    relay.popen.terminate()
    assert relay.end() == 0
    assert "relay to one, two, schema 'samecommit'" in relay.lines[0]
    assert sum("asked to stop" in line for line in relay.lines) == 2
    assert conn.execute("SELECT count(*) FROM samecommit.position WHERE lease_until_at > now()").fetchone() == (0,)
    assert conn.execute("SELECT state FROM samecommit.jobs").fetchall() == [("ready",)]


def test_one_destination_is_relayed_to_when_it_alone_is_named(start: Any, tmp_path: Path, conn: Conn) -> None:
    relay = start("relay", "things", "--destination", "two", "--log", "json", "--no-doorbell")
    relay.wait_for('"event": "RelayStarted"')
    emit(conn, "a")
    wait_until(lambda: lines(tmp_path / "two.log") == 1, 20)
    relay.popen.send_signal(signal.SIGINT)
    assert relay.end() == 0
    assert not (tmp_path / "one.log").exists()
    started = [told for told in map(json.loads, relay.lines) if told["event"] == "RelayStarted"]
    assert [told["destination"] for told in started] == ["two"]


def test_a_worker_can_leave_the_relays_out(start: Any, tmp_path: Path, conn: Conn) -> None:
    worker = start("worker", "things", "--no-relays")
    worker.wait_for("working on")
    conn.execute("SELECT samecommit.enqueue('greet')")
    wait_until(lambda: conn.execute("SELECT state FROM samecommit.jobs").fetchall() == [("done",)], 20)
    assert conn.execute("SELECT count(*) FROM samecommit.position").fetchone() == (0,)
    worker.popen.terminate()
    assert worker.end() == 0


@pytest.mark.parametrize("command", ["relay", "worker"])
def test_the_given_database_is_relayed_from(start: Any, dsn: str, conn: Conn, command: str) -> None:
    process = start(command, "things", "--dsn", dsn, dsn="host=/nowhere")
    process.wait_for("relays to ", 2)
    assert conn.execute("SELECT count(*) FROM samecommit.position").fetchone() == (2,)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["relay"], 2, "give MODULE:APP"),
        (["relay", "things", "--destination", "three"], 2, "there are 'one', 'two'"),
    ],
    ids=["no application", "no such destination"],
)
def test_what_cannot_start_says_why_and_ends(start: Any, arguments: list[str], status: int, says: str) -> None:
    relay = start(*arguments)
    assert relay.end() == status
    assert any(says in line for line in relay.lines), relay.lines
    assert not any("Traceback" in line for line in relay.lines)


def test_a_relay_waits_for_a_server_that_is_away_and_stops_when_told(start: Any) -> None:
    relay = start("relay", "things", "--dsn", "host=127.0.0.1 port=1")
    relay.wait_for("connecting failed, next try in")
    relay.popen.terminate()
    assert relay.end() == 0
