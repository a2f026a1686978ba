"""The worker as a process: started by its command, told by signals, and judged by its exit status and its lines."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from tests.support.jobs import Jobs
from tests.support.waiting import wait_until

from samecommit.storage.migrate import migrate

APP = """
import asyncio, multiprocessing, os, time
from samecommit import App

app = App()

@app.task()
def greet(name: str) -> str:
    return f"hello {name} from {os.getpid()}"

@app.task(max_attempts=1)
def boom() -> None:
    raise ValueError("postgresql://me:hunter2@db/x cannot be reached")

@app.task()
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)

@app.task()
async def block(seconds: float) -> None:
    time.sleep(seconds)

@app.task()
def fork() -> int | None:
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    forked.start()
    forked.terminate()
    forked.join(5)
    code = forked.exitcode
    forked.kill()
    return code
"""


class Process:
    """A running command and the lines that it has written to standard error."""

    def __init__(self, *arguments: str, cwd: Path, dsn: str) -> None:
        self.lines: list[str] = []
        command = [sys.executable, "-m", "samecommit", *arguments]
        environment = {**os.environ, "SAMECOMMIT_DSN": dsn, "PYTHONUNBUFFERED": "1"}
        self.popen = subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        self.lines.extend(iter(self.popen.stderr.readline, ""))

    def wait_for(self, part: str, count: int = 1) -> None:
        wait_until(lambda: sum(part in line for line in self.lines) >= count, 20, what=f"{part!r} in {self.lines}")

    def end(self, timeout_seconds: float = 30) -> int:
        status = self.popen.wait(timeout_seconds)
        self._reader.join(5)
        return status

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self._reader.join(5)
        assert self.popen.stderr is not None
        self.popen.stderr.close()


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


def enqueue(jobs: Jobs, kind: str, payload: str = "{}") -> int:
    return int(jobs.value("SELECT id FROM $.enqueue(%s, %s)", kind, payload))


def in_state(jobs: Jobs, job_id: int, state: str) -> None:
    wait_until(lambda: jobs.state(job_id) == state, 20, what=f"job {job_id} {state}")


def test_it_runs_jobs_and_stops_cleanly_when_told(start: Any, jobs: Jobs) -> None:
    worker = start("worker", "things:app", "--concurrency", "3")
    job_id = enqueue(jobs, "greet", '{"name": "Ann"}')
    in_state(jobs, job_id, "done")
    assert jobs.row(job_id)["result"].startswith("hello Ann from")
    worker.popen.terminate()
    assert worker.end() == 0
    assert jobs.value("SELECT count(*) FROM $.worker") == 0
    (first, *_) = worker.lines
    assert "5 tasks, 3 at once, schema 'samecommit'" in first
    worker.wait_for("stopped; 0 jobs given back")


def test_a_process_that_a_handler_has_forked_ends_when_it_is_told(start: Any, jobs: Jobs) -> None:
    worker = start("worker", "things")
    job_id = enqueue(jobs, "fork")
    in_state(jobs, job_id, "done")
    assert jobs.row(job_id)["result"] == -signal.SIGTERM
    worker.popen.terminate()
    assert worker.end() == 0


def test_failures_are_told_without_secrets(start: Any, jobs: Jobs, dsn: str) -> None:
    worker = start("worker", "things", "--log", "json", "--dsn", dsn.replace("@", ":hunter3@"))
    worker.wait_for("working on")
    in_state(jobs, int(jobs.value("SELECT id FROM $.enqueue('boom', max_attempts => 1)")), "failed")
    worker.wait_for('"event": "JobFailed"')
    worker.popen.terminate()
    assert worker.end() == 0
    text = "".join(worker.lines)
    assert "failed for good" in text and "hunter2" not in text and "hunter3" not in text


def test_a_graceful_stop_lets_running_jobs_end(start: Any, jobs: Jobs) -> None:
    worker = start("worker", "things")
    job_id = enqueue(jobs, "wait", '{"seconds": 1}')
    in_state(jobs, job_id, "running")
    worker.popen.terminate()
    assert worker.end() == 0
    assert jobs.state(job_id) == "done"


def test_the_second_signal_gives_running_jobs_back_without_an_attempt(start: Any, jobs: Jobs) -> None:
    worker = start("worker", "things")
    job_id = enqueue(jobs, "wait", '{"seconds": 600}')
    in_state(jobs, job_id, "running")
    worker.popen.send_signal(signal.SIGINT)
    worker.wait_for("again to stop now")
    wait_until(lambda: worker.popen.poll() is not None or send_again(worker), 20)
    assert worker.end() == 0
    assert (jobs.state(job_id), jobs.row(job_id)["attempts"]) == ("ready", 0)
    assert any("stopping now" in line for line in worker.lines)


def send_again(worker: Process) -> bool:
    """Send the second signal until it has counted, which is not at once: signals that come together are one."""
    if not any("stopping now" in line for line in worker.lines) and worker.popen.poll() is None:
        worker.popen.send_signal(signal.SIGINT)
        threading.Event().wait(0.25)
    return False


def test_a_third_signal_ends_even_a_blocked_loop(start: Any, jobs: Jobs) -> None:
    worker = start("worker", "things")
    job_id = enqueue(jobs, "block", '{"seconds": 600}')
    in_state(jobs, job_id, "running")

    def is_over() -> bool:
        if worker.popen.poll() is None:
            worker.popen.terminate()
            threading.Event().wait(0.25)
        return worker.popen.poll() is not None

    wait_until(is_over, 20)
    assert worker.end() == 1


def test_several_processes_share_the_work_and_stop_together(start: Any, jobs: Jobs) -> None:
    worker = start("worker", "things:app", "--processes", "2", "--reap-seconds", "0.5")
    worker.wait_for("working on every queue", 2)
    assert jobs.value("SELECT count(DISTINCT pid) FROM $.worker") == 2
    killed = int(jobs.value("SELECT min(pid) FROM $.worker"))
    os.kill(killed, signal.SIGKILL)
    worker.wait_for("was ended by SIGKILL")
    worker.wait_for("working on every queue", 3)
    in_state(jobs, enqueue(jobs, "greet", '{"name": "Ann"}'), "done")
    worker.popen.terminate()
    assert worker.end() == 0
    assert sum("stopped; 0 jobs given back" in line for line in worker.lines) == 2


def test_a_job_outlives_a_supervisor_that_is_killed(start: Any, jobs: Jobs) -> None:
    worker = start("worker", "things:app", "--processes", "2")
    worker.wait_for("working on every queue", 2)
    job_id = enqueue(jobs, "wait", '{"seconds": 1}')
    in_state(jobs, job_id, "running")
    worker.popen.kill()
    in_state(jobs, job_id, "done")
    wait_until(lambda: jobs.value("SELECT count(*) FROM $.worker") == 0, 20)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["worker"], 2, "give MODULE:APP"),
        (["worker", "nothing"], 2, "there is no module 'nothing'"),
        (["worker", "things:ap"], 2, "App 'app' with 5 kinds"),
        (["worker", "things", "--lease-seconds", "1"], 2, "must outlast two heartbeats"),
        (["worker", "things", "--dsn", "host=127.0.0.1 port=1", "--connect-seconds", "0.1"], 4, "no connection to the"),
        (["worker", "nothing", "--processes", "2"], 2, "there is no module 'nothing'"),
    ],
)
def test_what_cannot_start_says_why_and_ends(start: Any, arguments: list[str], status: int, says: str) -> None:
    worker = start(*arguments)
    assert worker.end() == status
    assert any(says in line for line in worker.lines), worker.lines
    assert not any("Traceback" in line for line in worker.lines)


def test_an_empty_database_says_what_to_run(start: Any, empty_dsn: str) -> None:
    worker = start("worker", "things", dsn=empty_dsn)
    assert worker.end() == 4
    assert "run samecommit migrate" in worker.lines[-1]
    migrate(empty_dsn, "samecommit")
    started = start("worker", "things", dsn=empty_dsn)
    started.wait_for("working on every queue")


def test_a_worker_waits_for_a_server_that_is_away_and_stops_when_told(start: Any) -> None:
    worker = start("worker", "things", "--dsn", "host=127.0.0.1 port=1")
    worker.wait_for("connecting failed, next try in")
    worker.popen.terminate()
    assert worker.end() == 0
    assert any("Connection refused" in line for line in worker.lines)


def test_a_database_that_does_not_exist_is_not_waited_for(start: Any, dsn: str) -> None:
    worker = start("worker", "things", dsn=make_conninfo(dsn, dbname="nowhere"))
    assert worker.end() == 4
    assert 'database "nowhere" does not exist' in worker.lines[-1]


@pytest.mark.slow
def test_dev_brings_a_server_and_keeps_its_data(start: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for expected in ("0001_tables", None):
        dev = start("dev", "things:app", "--data", str(data), "--log", "json", dsn="host=/nowhere")
        dev.wait_for("working on every queue")
        ready = next(line for line in dev.lines if '"event": "Ready"' in line)
        assert ('"applied": 0' not in ready) == (expected is not None)
        dev.popen.send_signal(signal.SIGINT)
        assert dev.end() == 0
