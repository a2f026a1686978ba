"""Leases that are lost: by a deleted row, a hung loop, a killed process; and leases that must not be."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.waiting import until, wait_until
from tests.support.workers import fast, running_worker

from samecommit import App, AsyncContext, Context
from samecommit.signals import JobsEnded, LeasesReaped, LeaseWasLost, WorkerStarted

SHORT: dict[str, Any] = {"lease_seconds": 1.0, "heartbeat_seconds": 0.1}


async def test_a_worker_whose_lease_was_taken_stops_everything_and_begins_anew(app: App, jobs: Jobs) -> None:
    started: list[int] = []
    stopped: list[str] = []
    asked: list[bool] = []

    @app.task()
    async def on_loop(ctx: AsyncContext) -> str:
        started.append(ctx.job.claims)
        if ctx.job.claims == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append("loop")
                raise
        return "second"

    @app.task()
    def on_thread(ctx: Context) -> str:
        started.append(ctx.job.claims)
        if ctx.job.claims == 1:
            until_asked = time.monotonic() + 10
            while not ctx.cancel_requested and time.monotonic() < until_asked:
                time.sleep(0.01)
            asked.append(ctx.cancel_requested)
            return "first, too late"
        return "second"

    recorder = Recorder(app)
    ids = [app.enqueue(task.job()).id for task in (on_loop, on_thread)]
    async with running_worker(app, **SHORT) as worker:
        await until(lambda: len(started) == 2)
        old = worker.lease_id
        jobs.all("DELETE FROM $.worker")
        lost = await recorder.one(LeaseWasLost)
        assert (lost.lease_id, lost.running) == (old, 2)
        await recorder.one(WorkerStarted, lambda signal: signal.lease_id != old)
        for job_id in ids:
            row = await jobs.ended(job_id)
            assert (row["result"], row["attempts"], row["claims"]) == ("second", 1, 2)
            assert jobs.outcomes(job_id) == ["lost", "done"]
        assert worker.lease_id != old
    assert stopped == ["loop"]
    assert asked == [True]
    assert started == [1, 1, 2, 2]


async def test_what_was_about_to_be_written_is_not_written_after_the_lease_is_lost(app: App, jobs: Jobs) -> None:
    blocked = asyncio.Event()

    @app.task()
    async def work(ctx: AsyncContext) -> int:
        await blocked.wait()
        return ctx.job.claims

    job_id = app.enqueue(work.job()).id
    async with running_worker(app, **SHORT) as worker:
        await until(lambda: jobs.state(job_id) == "running")
        jobs.all("DELETE FROM $.worker")
        jobs.all("UPDATE $.job SET claim_id = claim_id + 1")  # somebody else has it by now
        worker.heartbeat.beat_now()
        await until(lambda: worker._lease is None or worker.lease_id == worker._lease)
        blocked.set()
        await until(lambda: worker.executor.is_empty)
    assert jobs.state(job_id) == "running"


async def test_a_handler_that_blocks_the_loop_keeps_its_lease_for_a_while(app: App, jobs: Jobs) -> None:  # B14a
    @app.task()
    async def rude() -> None:
        time.sleep(1.5)  # noqa: ASYNC251 - the point

    @app.task()
    async def other() -> None: ...

    recorder = Recorder(app)
    job_id = app.enqueue(rude.job()).id
    async with running_worker(app, lease_seconds=0.6, heartbeat_seconds=0.1, stall_seconds=30):
        row = await jobs.ended(job_id)
        await jobs.ended(app.enqueue(other.job()).id)
    assert (row["attempts"], row["claims"]) == (0, 1)
    assert recorder.all(LeaseWasLost) == []


CHILD = """
import asyncio, os, signal, sys, time
from samecommit import App, AsyncContext, Backoff, Context, WorkerConfig

app = App(sys.argv[1])
marks = open(sys.argv[2], "a", buffering=1)

@app.task()
async def hangs(ctx: AsyncContext) -> str:
    marks.write(f"hangs {ctx.job.id} {ctx.job.claims}\\n")
    if ctx.job.claims == 1:
        time.sleep(600)
    return "second"

@app.task(max_attempts=50)
async def kills(ctx: AsyncContext) -> None:
    marks.write(f"kills {ctx.job.id} {ctx.job.claims}\\n")
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(max_attempts=50)
async def works(ctx: AsyncContext) -> None:
    marks.write(f"works {ctx.job.id} {ctx.job.claims}\\n")
    await asyncio.sleep(0.2)

settings = eval(sys.argv[3])
asyncio.run(app.worker(WorkerConfig(**settings)).run())
"""


class Children:
    """Worker processes that die, and are started again while the test wants it."""

    def __init__(self, dsn: str, folder: Path, **settings: object) -> None:
        self._script = folder / "child.py"
        self._script.write_text(textwrap.dedent(CHILD))
        self.marks = folder / "marks"
        self.marks.touch()
        self._command = [sys.executable, str(self._script), dsn, str(self.marks), repr(settings)]
        self.running: subprocess.Popen[bytes] | None = None
        self.started = 0

    def keep_one(self) -> None:
        if self.running is None or self.running.poll() is not None:
            self.running = subprocess.Popen(self._command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
            self.started += 1

    def end(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait()

    def runs(self, kind: str) -> list[str]:
        return [line for line in self.marks.read_text().splitlines() if line.startswith(kind + " ")]


async def test_a_hung_loop_loses_its_lease_and_somebody_else_does_its_job(
    app: App, jobs: Jobs, dsn: str, tmp_path: Path
) -> None:
    @app.task()
    async def hangs(ctx: AsyncContext) -> str:
        return f"run {ctx.job.claims}"

    job_id = app.enqueue(hangs.job()).id
    children = Children(dsn, tmp_path, lease_seconds=1.0, heartbeat_seconds=0.2, stall_seconds=0.5, chores=False)
    children.keep_one()
    recorder = Recorder(app)
    try:
        await until(lambda: children.runs("hangs"))
        async with running_worker(app, **SHORT):
            row = await jobs.ended(job_id, timeout_seconds=30)
    finally:
        children.end()
    assert (row["result"], row["attempts"]) == ("run 2", 1)
    assert jobs.outcomes(job_id) == ["lost", "done"]
    assert sum(signal.jobs for signal in recorder.all(LeasesReaped)) == 1


def test_a_killed_worker_s_jobs_are_done_by_the_next_one(app: App, jobs: Jobs, dsn: str, tmp_path: Path) -> None:
    @app.task()
    async def works() -> None: ...

    ids = [app.enqueue(works.job()).id for _ in range(20)]
    children = Children(dsn, tmp_path, lease_seconds=1.0, heartbeat_seconds=0.2, reap_seconds=0.1, concurrency=20)
    try:
        children.keep_one()
        wait_until(lambda: children.runs("works"), 20)
        assert children.running is not None
        os.kill(children.running.pid, signal.SIGKILL)
        children.running.wait()
        children.keep_one()
        wait_until(lambda: jobs.count("done") == 20, 30)
    finally:
        children.end()
    assert {jobs.row(job_id)["attempts"] for job_id in ids} <= {0, 1}


@pytest.mark.slow
def test_a_job_that_kills_its_worker_is_held_at_last_and_its_neighbours_are_done(
    app: App, jobs: Jobs, dsn: str, tmp_path: Path
) -> None:
    @app.task()
    async def kills() -> None: ...

    @app.task()
    async def works() -> None: ...

    neighbours = [app.enqueue(works.job()).id for _ in range(10)]
    killer = app.enqueue(kills.job()).id
    neighbours += [app.enqueue(works.job()).id for _ in range(10)]
    children = Children(dsn, tmp_path, lease_seconds=0.6, heartbeat_seconds=0.2, reap_seconds=0.1, concurrency=30)

    def is_over() -> bool:
        children.keep_one()
        return jobs.state(killer) == "held" and jobs.count("done") == len(neighbours)

    try:
        wait_until(is_over, 90)
    finally:
        children.end()
    row = jobs.row(killer)
    assert (row["crashes"], row["hold_reason"]) == (3, "its worker died 3 times while it ran alone")
    assert len(children.runs("kills")) == row["claims"] <= 6
    assert {jobs.row(job_id)["crashes"] for job_id in neighbours} == {0}
    assert {jobs.state(job_id) for job_id in neighbours} == {"done"}


async def test_two_workers_share_the_work_and_every_job_runs_once(app: App, jobs: Jobs) -> None:
    counts: dict[int, int] = {}
    second = App(app.dsn)
    for one in (app, second):

        @one.task(name="work")
        async def work(ctx: AsyncContext) -> None:
            counts[ctx.job.id] = counts.get(ctx.job.id, 0) + 1
            await asyncio.sleep(0)

    jobs.all(
        "INSERT INTO $.job (queue_id, kind, pos, payload) SELECT 1, 'work', nextval('samecommit.pos_seq'), '{}' FROM generate_series(1, 2000)"
    )
    recorders = [Recorder(one) for one in (app, second)]
    async with running_worker(app, concurrency=20), running_worker(second, concurrency=20):
        await until(lambda: jobs.count("done") == 2000, 30)
    assert set(counts.values()) == {1} and len(counts) == 2000
    assert all(recorder.all(JobsEnded) for recorder in recorders)
    assert sum(signal.refused for recorder in recorders for signal in recorder.all(JobsEnded)) == 0
    assert jobs.value("SELECT count(*) FROM $.claim") == 0


@pytest.mark.session("connections of its own")
async def test_a_worker_that_lost_its_server_goes_on_when_it_is_back(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    async with running_worker(app, config=fast(**SHORT)):
        await jobs.ended(app.enqueue(work.job()).id)
        for _ in range(3):
            jobs.all(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'samecommit %%' AND pid <> pg_backend_pid()"
            )
            await jobs.ended(app.enqueue(work.job()).id, timeout_seconds=20)


async def test_a_process_that_stood_still_starts_nothing_before_its_lease_is_confirmed(app: App, jobs: Jobs) -> None:
    started: list[int] = []

    @app.task()
    async def work(n: int) -> None:
        started.append(n)

    async with running_worker(app) as worker:
        is_overdue = True
        worker.executor._is_overdue = lambda: is_overdue
        job_id = app.enqueue(work.job(1)).id
        await until(lambda: len(worker.executor.waiting) == 1)
        await worker.executor.look()
        assert started == []
        is_overdue = False
        assert (await jobs.ended(job_id))["state"] == "done"


async def test_a_lease_is_overdue_by_the_clock_that_goes_on_while_the_process_is_stopped(app: App) -> None:
    @app.task()
    async def work() -> None: ...

    worker = app.worker()
    worker._build()
    found = [worker.heartbeat.is_overdue]  # nothing was heard yet
    for seconds in (29.0, 31.0):
        worker.heartbeat._beaten = worker.heartbeat._clock() - seconds
        found.append(worker.heartbeat.is_overdue)
    assert found == [True, False, True]
