"""Tasks with ``executor="process"``: they run in children that die alone, and are killed when nobody wants them any more."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.waiting import until, wait_until
from tests.support.workers import fast, running_worker
from tests.worker import an_app as tasks

from samecommit import App
from samecommit.errors import ConfigError, TaskDefinitionError
from samecommit.job import Job
from samecommit.retry import Backoff
from samecommit.runtime import children
from samecommit.signals import JobFailed
from samecommit.worker.child import Channel, Child
from samecommit.worker.verdict import End
from samecommit.worker.wire import Hello, Request

app = tasks.app

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.skipif(os.name != "posix", reason="POSIX only")]


@pytest.fixture
def database(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMECOMMIT_DSN", dsn)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def said(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def pids(notes: Path) -> list[int]:
    return [int(line.removeprefix("pid ")) for line in said(notes) if line.startswith("pid ")]


def let_go(notes: Path) -> None:
    notes.touch()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


# ------------------------------------------------------------------------------------------------------- what they can


async def test_arguments_and_results_are_what_they_are_elsewhere(jobs: Jobs) -> None:
    when = datetime(2026, 12, 1, 8, 30, tzinfo=UTC)
    job = app.enqueue(tasks.double.job(21, when, Decimal("1.50")))
    other = app.enqueue(tasks.double_async.job(4))
    async with running_worker(app) as worker:
        await jobs.ended(job.id)
        await jobs.ended(other.id)
        installation = worker.installation
    result = app.result(job)
    assert result.pop("pid") != os.getpid()
    created = jobs.value("SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM $.jobs WHERE id = %s", job.id)
    key = f"{installation}:{job.id}:{created}"
    assert result == {"n": 42, "when": when.isoformat(), "price": "1.50", "key": key}
    assert app.result(other) == 8


async def test_a_job_does_not_see_what_another_of_its_child_set_in_its_context(jobs: Jobs) -> None:
    made = [app.enqueue(task.job()) for task in (tasks.set_context, tasks.set_context_async) for _ in range(2)]
    async with running_worker(app, concurrency=1, children=1):
        for job in made:
            await jobs.ended(job.id)
    pids = set()
    for job in made:
        found, pid = app.result(job)
        assert found is None
        pids.add(pid)
    assert len(pids) == 1, "one child ran them all"


async def test_every_outcome_comes_back(jobs: Jobs) -> None:
    ids = {how: app.enqueue(tasks.end.job(how)).id for how in ("fail", "hold", "snooze", "error", "limited")}
    async with running_worker(app, concurrency=1, children=1):
        for job_id in ids.values():
            await until(lambda job_id=job_id: jobs.attempts(job_id))  # type: ignore[misc]
    rows = {how: jobs.row(job_id) for how, job_id in ids.items()}
    assert {how: row["state"] for how, row in rows.items()} == {
        "fail": "failed", "hold": "held", "snooze": "ready", "error": "ready", "limited": "ready",
    }  # fmt: skip
    assert rows["error"]["last_error"].startswith("ValueError: broken\n\nTraceback")
    assert (rows["hold"]["hold_reason"], rows["hold"]["hold_data"]) == ("look", {"n": 1})
    assert {how: row["attempts"] for how, row in rows.items() if row["attempts"]} == {"fail": 1, "error": 1}


async def test_a_snooze_until_a_datetime_of_another_class_is_a_snooze(jobs: Jobs) -> None:
    job_id = app.enqueue(tasks.snooze_until_a_moment.job()).id
    async with running_worker(app):
        await until(lambda: jobs.attempts(job_id))
    row = jobs.row(job_id)
    assert (jobs.outcomes(job_id), row["run_at"]) == (["snoozed"], datetime(2100, 1, 1, tzinfo=UTC))


async def test_what_a_job_records_after_its_end_is_not_written_with_the_next(jobs: Jobs) -> None:
    first = app.enqueue(tasks.leave_a_task_that_records.job()).id
    second = app.enqueue(tasks.last_longer_than_a_tale.job()).id
    async with running_worker(app, concurrency=1, children=1):
        await jobs.ended(first)
        await jobs.ended(second)
    assert not [attempt["record"] for attempt in jobs.attempts(second) if attempt["record"]]


async def test_a_transaction_of_the_handler_s_ends_its_job(jobs: Jobs, conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE written (job_id bigint)")
    good = [app.enqueue(task).id for task in (tasks.write.job(fails=False), tasks.write_async.job())]
    bad = app.enqueue(tasks.write.using(max_attempts=1).job(fails=True)).id
    async with running_worker(app) as worker:
        for job_id in good:
            await jobs.ended(job_id)
        await jobs.ended(bad, "failed")
        await until(lambda: worker.completer.is_empty)
    assert sorted(row[0] for row in conn.execute("SELECT job_id FROM written")) == good


async def test_what_a_handler_records_is_written_while_it_runs(jobs: Jobs, notes: Path) -> None:
    job_id = app.enqueue(tasks.tell.job(str(notes))).id
    async with running_worker(app):
        first = await until(lambda: jobs.all("SELECT record, progress FROM $.attempts WHERE job_id = %s", job_id))
        assert first[0] == ({"model": "m1"}, {"done": 3})
        let_go(notes)
        await jobs.ended(job_id)
        assert jobs.attempts(job_id)[0]["record"] == {"model": "m1", "tokens": 12}


async def test_a_child_has_one_socket_no_input_and_says_in_its_log_which_job_it_runs(jobs: Jobs) -> None:
    job = app.enqueue(tasks.look_around.job())
    async with running_worker(app):
        await jobs.ended(job.id)
    seen = app.result(job)
    assert seen["log"] == [f"look_around {job.id}"]
    assert (seen["sockets"], seen["input"], seen["threads"]) == (1, "/dev/null", 2)


# --------------------------------------------------------------------------------------------------------- how they die


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("exit", "ChildDied: its child process ended by itself, with status 7"),
        ("segfault", "ChildDied: its child process was killed by SIGSEGV"),
        (
            "kill",
            "ChildDied: its child process was killed by SIGKILL: by the system for want of memory, or by somebody",
        ),
    ],
)
async def test_a_child_that_dies_is_a_crash_of_its_job_and_of_no_other(jobs: Jobs, how: str, says: str) -> None:
    recorder = Recorder(app)
    others = [app.enqueue(tasks.double_async.job(n)).id for n in range(20)]
    killer = app.enqueue(tasks.die.job(how)).id
    async with running_worker(app, children=2) as worker:
        row = await jobs.ended(killer, "held")
        for job_id in others:
            await jobs.ended(job_id)
        lease = worker.lease_id
    recorder.stop()
    assert (row["attempts"], row["crashes"]) == (3, 3)
    assert row["hold_reason"] == f"{says}; that was crash 3 of this job"
    assert jobs.outcomes(killer) == ["crashed"] * 3
    assert {attempt["lease_id"] for attempt in jobs.attempts(killer)} == {lease}
    assert {jobs.row(job_id)["attempts"] for job_id in others} == {0}
    assert [signal.will_retry for signal in recorder.all(JobFailed)] == [True, True, False]


async def test_a_handler_that_raises_system_exit_has_failed_and_its_child_lives(jobs: Jobs) -> None:
    job_id = app.enqueue(tasks.die.using(max_attempts=1).job("lie")).id
    async with running_worker(app, children=1):
        assert (await jobs.ended(job_id, "failed"))["last_error"].startswith("SystemExit: 3")
    assert jobs.row(job_id)["crashes"] == 0


async def test_a_child_that_died_idle_is_nobody_s_fault(jobs: Jobs) -> None:
    first = app.enqueue(tasks.pid.job())
    async with running_worker(app, children=1):
        await jobs.ended(first.id)
        killed = app.result(first)
        os.kill(killed, signal.SIGKILL)
        await until(lambda: is_gone(killed))
        second = app.enqueue(tasks.pid.job())
        row = await jobs.ended(second.id)
    assert (row["attempts"], row["crashes"]) == (0, 0)
    assert app.result(second) != killed


async def test_a_death_is_seen_though_a_process_that_the_child_had_forked_lives_on(jobs: Jobs, notes: Path) -> None:
    job_id = app.enqueue(tasks.die_and_leave_a_fork.job(str(notes))).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
        (forked,) = pids(notes)
        await until(lambda: is_gone(forked))
    assert (row["crashes"], row["last_error"].partition(":")[0]) == (1, "ChildDied")


async def test_a_process_that_a_handler_has_forked_can_be_terminated(jobs: Jobs) -> None:
    job = app.enqueue(tasks.terminate_forks.using(max_attempts=1).job())
    async with running_worker(app):
        await jobs.ended(job.id)
    assert app.result(job) == [-signal.SIGTERM] * 20


# ----------------------------------------------------------------------------------------------------- how they are killed


@pytest.mark.parametrize("how", ["polite", "stubborn", "child"])
async def test_a_timeout_kills_the_child_and_all_that_it_started(
    jobs: Jobs, notes: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_GRACE_SECONDS", 0.5)
    job_id = app.enqueue(tasks.hang.job(str(notes), how)).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
        assert all(is_gone(pid) for pid in pids(notes)), "the end was written while something of it still ran"
    assert row["last_error"] == "timeout: it ran longer than 0.5 s"
    assert row["crashes"] == 0
    assert said(notes)[-1] == "cleaned up"
    assert len(pids(notes)) == (2 if how == "child" else 1)


@pytest.mark.parametrize("kind", ["wait", "wait_async"])
async def test_a_cancel_ends_the_child(jobs: Jobs, notes: Path, kind: str) -> None:
    task = {"wait": tasks.wait, "wait_async": tasks.wait_async}[kind]
    job_id = app.enqueue(task.job(str(notes))).id
    async with running_worker(app):
        (pid,) = await until(lambda: pids(notes))
        jobs.all("SELECT $.cancel(%s, 'not wanted')", job_id)
        row = await jobs.ended(job_id, "cancelled")
        assert is_gone(pid)
    assert (row["last_error"], row["attempts"]) == ("not wanted", 0)
    assert ("cleaned up" in said(notes)) is (kind == "wait_async")


async def test_a_lost_lease_ends_the_child(jobs: Jobs, notes: Path) -> None:
    job_id = app.enqueue(tasks.wait.job(str(notes))).id
    async with running_worker(app, grace_seconds=0.1) as worker:
        (pid,) = await until(lambda: pids(notes))
        lost = worker.lease_id
        jobs.all("DELETE FROM $.worker")
        worker.heartbeat.beat_now()
        await until(lambda: is_gone(pid))
        await until(lambda: worker.lease_id != lost)
        await until(lambda: len(pids(notes)) == 2, what="another run of the job")
    assert jobs.row(job_id)["attempts"] == 1


async def test_at_the_end_of_the_grace_period_the_child_is_killed_and_its_job_given_back(
    jobs: Jobs, notes: Path
) -> None:
    running = app.enqueue(tasks.wait.job(str(notes))).id
    async with running_worker(app, children=1, grace_seconds=0.1):
        (pid,) = await until(lambda: pids(notes))
        waiting = app.enqueue(tasks.wait.job(str(notes))).id
        await until(lambda: jobs.state(waiting) == "running")
    assert is_gone(pid)
    assert len(pids(notes)) == 1, "what waited for a child was started during the stop"
    for job_id in (running, waiting):
        row = jobs.row(job_id)
        assert (row["shown_as"], row["attempts"], row["claims"]) == ("ready", 0, 0)


async def test_time_runs_for_a_job_only_when_it_has_a_child(jobs: Jobs, notes: Path) -> None:
    ids = [app.enqueue(tasks.hang.job(str(notes), "polite")).id for _ in range(2)]
    async with running_worker(app, children=1):
        for job_id in ids:
            await jobs.ended(job_id, "failed")
    assert said(notes).count("cleaned up") == 2


async def test_a_stopped_worker_leaves_no_child_and_no_descriptor(jobs: Jobs) -> None:
    before = descriptors()
    job = app.enqueue(tasks.pid.job())
    async with running_worker(app):
        await jobs.ended(job.id)
    pid = app.result(job)
    assert is_gone(pid)
    with pytest.raises(ProcessLookupError):  # it was waited for
        os.kill(pid, 0)
    await until(lambda: descriptors() <= before)


def test_children_end_with_a_worker_that_is_killed(jobs: Jobs, notes: Path, dsn: str) -> None:
    app.enqueue(tasks.wait.job(str(notes)))
    app.enqueue(tasks.wait_async.job(str(notes)))
    environment = {**os.environ, "SAMECOMMIT_DSN": dsn}
    command = [sys.executable, "-m", "samecommit", "worker", "tests.worker.an_app:app", "--children", "2"]
    worker = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(pids(notes)) == 2, 20)
        for pid in pids(notes):
            os.kill(pid, signal.SIGTERM)  # as a service manager does to every process of a service
        assert not any(is_gone(pid) for pid in pids(notes))
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: all(is_gone(pid) for pid in pids(notes)))


# ------------------------------------------------------------------------------------------------------ how they are kept


async def test_a_child_is_used_again_until_it_has_done_its_number_of_jobs(jobs: Jobs) -> None:
    found = []
    async with running_worker(app, children=1, max_jobs_per_child=2):
        for _ in range(3):
            job = app.enqueue(tasks.pid.job())
            await jobs.ended(job.id)
            found.append(app.result(job))
    assert [found.count(pid) for pid in dict.fromkeys(found)] == [2, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_child_that_has_grown_is_replaced_after_its_job(jobs: Jobs) -> None:
    found = []
    async with running_worker(app, children=1, max_memory_per_child=150):
        for mb in (1, 200, 1):
            job = app.enqueue(tasks.grow.job(mb))
            await jobs.ended(job.id)
            found.append(app.result(job))
    assert found[0] == found[1] != found[2]


async def test_no_more_children_run_than_were_asked_for(jobs: Jobs) -> None:
    made = [app.enqueue(tasks.pid.job()) for _ in range(6)]
    async with running_worker(app, children=2):
        for job in made:
            await jobs.ended(job.id)
    assert len({app.result(job) for job in made}) <= 2


# ---------------------------------------------------------------------------------------------------- what is refused


def test_an_unknown_executor_is_refused_where_it_is_declared() -> None:
    with pytest.raises(TaskDefinitionError, match=r"work.*test_children.*executor is 'fork'"):

        @App().task(executor="fork")  # type: ignore[arg-type]
        def work() -> None: ...


def test_an_application_that_no_child_can_import_is_refused() -> None:
    alone = App()

    @alone.task(executor="process")
    def work() -> None: ...

    with pytest.raises(ConfigError, match="task 'work' runs in child processes"):
        alone.worker(fast())


async def test_an_application_that_a_child_cannot_import_fails_its_jobs_and_says_why(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "home", "tests.worker.an_app:gone")
    job_id = app.enqueue(tasks.pid.using(max_attempts=1).job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
    assert (
        "could not import the application: AppNotFound: 'tests.worker.an_app:gone' names nothing" in row["last_error"]
    )
    assert row["crashes"] == 0


async def test_a_child_that_talks_nonsense_is_killed_and_its_attempt_has_failed(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive: Callable[[Any], Any] = children.Child.receive

    async def garbled(self: Any) -> bytes:
        data: bytes = await receive(self)
        return b"\xc1" if data else data  # the first frame, "ready", is empty

    monkeypatch.setattr(children.Child, "receive", garbled)
    job_id = app.enqueue(tasks.pid.using(max_attempts=1).job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
    assert "said what no child says" in row["last_error"]


@pytest.mark.parametrize(("payload", "says"), [(None, "no longer kept"), ("", "does not fit"), ("{}", None)])
def test_a_child_never_runs_a_job_without_its_payload_with_the_defaults_of_its_task(
    payload: str | None, says: str | None
) -> None:
    app, seen = App(""), []

    @app.task(name="work")
    def work(text: str = "all") -> None:
        seen.append(text)

    now = datetime.now(UTC)
    job = Job(1, 1, 1, 0, "work", 1, 0, 20, now, now, now, 0, 1, None, None, None, None, None, None, None, payload)
    hello = Hello("a:b", (), (), "", "samecommit", "i", Backoff())
    child = Child(hello, dict(app.definitions), cast("Channel", None))
    ended = child.run(Request(job, claim_id=1, lease_id=1))
    if says is None:
        assert (ended.end, seen) == (End("done"), ["all"])
    else:
        assert (ended.settle is not None and ended.settle.state, seen) == ("held", [])
        assert says in str(ended.settle)
