"""Attempts that are stopped: by their timeout, by somebody's request, by the end of the worker."""

import asyncio
import threading
import time
from typing import Any

import psycopg
import pytest
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.waiting import until
from tests.support.workers import fast, running_worker

from samecommit import App, AsyncContext, Context
from samecommit.signals import HandlerAbandoned, JobsEnded, WorkerStarted, WorkerStopped, WorkerWornOut
from samecommit.worker import executor


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_ABANDON_SECONDS", 0.2)


class Gate:
    """Where handlers wait until the test lets them go; it counts who came."""

    def __init__(self) -> None:
        self.entered = 0
        self.left: list[str] = []
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def wait(self, ctx: Context | None = None) -> str:
        self.entered += 1
        while not self._open.wait(0.01):
            if ctx is not None and ctx.cancel_requested:
                return "asked to stop"
        return "let go"

    async def wait_async(self) -> None:
        self.entered += 1
        try:
            while not self._open.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.left.append("cancelled")
            raise


# ------------------------------------------------------------------------------------------------------------ timeouts


async def test_a_coroutine_that_takes_too_long_is_cancelled_and_tried_again(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task(timeout=0.1, max_attempts=2)
    async def slow() -> None:
        await gate.wait_async()

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
    assert gate.left == ["cancelled"] * 2
    assert row["last_error"] == "timeout: it ran longer than 0.1 s"
    assert jobs.outcomes(job_id) == ["timed out"] * 2


async def test_every_task_has_a_timeout(app: App, jobs: Jobs) -> None:
    @app.task(max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app, timeout_seconds=0.1):
        assert (await jobs.ended(job_id, "failed"))["last_error"] == "timeout: it ran longer than 0.1 s"


async def test_a_plain_function_is_asked_to_stop_when_it_takes_too_long(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task(timeout=0.1, max_attempts=1)
    def slow(ctx: Context) -> None:
        gate.left.append(gate.wait(ctx))
        raise TimeoutError("stopped half-way")

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
    assert gate.left == ["asked to stop"]
    assert row["attempts"] == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_a_handler_that_does_not_stop_is_abandoned_and_its_late_end_changes_nothing(
    app: App, jobs: Jobs, is_async: bool
) -> None:
    gate = Gate()
    late: list[str] = []

    async def stubborn() -> str:
        gate.entered += 1
        while not gate._open.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        late.append("ended")
        return "late"

    if is_async:

        @app.task(name="slow", timeout=0.1, max_attempts=1)
        async def on_loop(ctx: AsyncContext) -> str:
            return await stubborn()

        slow = on_loop
    else:

        @app.task(name="slow", timeout=0.1, max_attempts=1)
        def on_thread(ctx: Context) -> str:
            gate.wait()
            late.append("ended")
            return "late"

        slow = on_thread

    @app.task()
    def other() -> None: ...

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app, threads=1, concurrency=1) as worker:
        row = await jobs.ended(job_id, "failed")
        assert row["last_error"].startswith("timeout")
        await jobs.ended(app.enqueue(other.job()).id)  # the stuck one takes nobody's place
        gate.open()
        await until(lambda: late)
        await until(lambda: worker.executor.is_empty and worker.completer.is_empty)
        assert jobs.row(job_id) == row


# ------------------------------------------------------------------------------------------------------------- cancels


@pytest.mark.parametrize("doorbell", [True, False], ids=["listening", "polling"])
async def test_a_running_coroutine_is_cancelled_within_a_second(app: App, jobs: Jobs, doorbell: bool) -> None:  # B25a
    gate = Gate()

    @app.task()
    async def slow() -> None:
        await gate.wait_async()

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app, doorbell=doorbell):
        await until(lambda: gate.entered)
        asked = time.monotonic()
        assert jobs.value("SELECT $.cancel(%s, 'not wanted')", job_id) == "asked"
        row = await jobs.ended(job_id, "cancelled", timeout_seconds=5)
        assert time.monotonic() - asked < 2
        await until(lambda: jobs.value("SELECT count(*) FROM $.cancellation") == 0)
    assert gate.left == ["cancelled"]
    assert (row["last_error"], row["attempts"]) == ("not wanted", 0)


async def test_a_running_plain_function_sees_that_it_should_stop(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    def slow(ctx: Context) -> None:
        gate.left.append(gate.wait(ctx))
        raise InterruptedError

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app):
        await until(lambda: gate.entered)
        jobs.all("SELECT $.cancel(%s)", job_id)
        row = await jobs.ended(job_id, "cancelled")
    assert gate.left == ["asked to stop"]
    assert row["last_error"] == "cancelled on request"


async def test_an_error_on_the_way_out_of_a_cancel_is_no_reason_to_try_again(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    async def slow() -> None:
        try:
            await gate.wait_async()
        finally:
            raise ValueError("while cleaning up")

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app):
        await until(lambda: gate.entered)
        jobs.all("SELECT $.cancel(%s)", job_id)
        await jobs.ended(job_id, "cancelled")
    assert gate.entered == 1


@pytest.mark.usefixtures("impatient")
async def test_a_handler_that_ignores_a_cancel_is_abandoned_as_cancelled(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    def deaf() -> None:
        gate.wait()

    job_id = app.enqueue(deaf.job()).id
    async with running_worker(app):
        await until(lambda: gate.entered)
        jobs.all("SELECT $.cancel(%s)", job_id)
        await jobs.ended(job_id, "cancelled")
        gate.open()
    assert jobs.state(job_id) == "cancelled"


async def test_of_many_running_jobs_only_the_one_that_was_named_stops(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    async def slow() -> None:
        await gate.wait_async()

    ids = [app.enqueue(slow.job()).id for _ in range(5)]
    async with running_worker(app):
        await until(lambda: gate.entered == 5)
        jobs.all("SELECT $.cancel(%s)", ids[2])
        await jobs.ended(ids[2], "cancelled")
        gate.open()
        for job_id in ids[:2] + ids[3:]:
            await jobs.ended(job_id)


async def test_a_cancel_of_a_job_that_waits_in_the_worker_keeps_it_from_starting(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    async def slow() -> None:
        await gate.wait_async()

    async with running_worker(app, concurrency=1) as worker:
        ids = [app.enqueue(slow.job()).id for _ in range(3)]
        await until(lambda: gate.entered)
        worker.executor._prefetch = 2
        worker.claimer.forget_view()
        for job_id in ids[1:]:
            assert jobs.value("SELECT $.cancel(%s)", job_id) in ("cancelled", "asked")
            await jobs.ended(job_id, "cancelled")
        gate.open()
        await jobs.ended(ids[0])
    assert gate.entered == 1


@pytest.mark.usefixtures("impatient")
async def test_stuck_threads_are_told_and_shown_until_they_come_back(app: App, jobs: Jobs) -> None:
    gate, recorder = Gate(), Recorder(app)

    @app.task(timeout=0.1, max_attempts=1)
    def deaf() -> None:
        gate.wait()

    async with running_worker(app, threads=2) as worker:
        await jobs.ended(app.enqueue(deaf.job()).id, "failed")
        told = await recorder.one(HandlerAbandoned)
        assert (told.kind, told.reason, told.stuck_threads) == ("deaf", "timeout", 1)
        worker.heartbeat.beat_now()
        await until(
            lambda: jobs.value("SELECT note FROM $.worker") == "1 of 4 threads hang in handlers that do not stop"
        )
        gate.open()
        await until(lambda: worker.executor.stuck_threads == 0)
        worker.heartbeat.beat_now()
        await until(lambda: jobs.value("SELECT note FROM $.worker") is None)


@pytest.mark.usefixtures("impatient")
async def test_a_worker_whose_threads_all_hang_stops_so_that_another_takes_its_place(app: App, jobs: Jobs) -> None:
    gate, recorder = Gate(), Recorder(app)

    @app.task(timeout=0.1, max_attempts=1)
    def deaf() -> None:
        gate.wait()

    @app.task()
    def plain() -> None: ...

    ids = [app.enqueue(deaf.job()).id for _ in range(2)]
    worker = app.worker(fast(threads=1))
    async with asyncio.timeout(20):
        await worker.run()  # it ends by itself
    assert worker.is_worn_out
    assert [signal.stuck_threads for signal in recorder.all(WorkerWornOut)] == [2]
    assert [jobs.state(job_id) for job_id in ids] == ["failed"] * 2
    gate.open()


async def test_time_does_not_run_for_a_function_that_waits_for_a_thread(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task(timeout=30)
    def busy() -> None:
        gate.wait()

    @app.task(timeout=0.1, max_attempts=1)
    def quick() -> None: ...

    async with running_worker(app, threads=1) as worker:
        first = app.enqueue(busy.job()).id
        await until(lambda: gate.entered)
        second = app.enqueue(quick.job()).id
        await until(lambda: second in worker.executor.running)
        for _ in range(2):
            now = asyncio.get_running_loop().time
            looked = now()
            await until(lambda looked=looked: worker.executor._looked > looked + 0.1)  # type: ignore[misc]
        gate.open()
        await jobs.ended(first)
        await jobs.ended(second)


async def test_a_cancel_of_a_function_that_waits_for_a_thread_keeps_it_from_starting(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    def plain() -> None:
        gate.wait()

    async with running_worker(app, threads=1) as worker:
        first = app.enqueue(plain.job()).id
        await until(lambda: gate.entered)
        second = app.enqueue(plain.job()).id
        await until(lambda: second in worker.executor.running)
        jobs.all("SELECT $.cancel(%s)", second)
        await jobs.ended(second, "cancelled")
        assert worker.executor.stuck_threads == 0
        gate.open()
        await jobs.ended(first)
    assert gate.entered == 1


# ------------------------------------------------------------------------------------------------------ the worker ends


async def test_a_stopping_worker_lets_handlers_end_and_claims_nothing_more(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    async def slow() -> str:
        await gate.wait_async()
        return "in time"

    running = app.enqueue(slow.job()).id
    async with running_worker(app, concurrency=5) as worker:
        await until(lambda: gate.entered)
        worker.stop()
        await until(lambda: worker.claimer.is_stopping)
        later = app.enqueue(slow.job()).id
        beaten = jobs.value("SELECT beat_at FROM $.worker")
        worker.heartbeat.beat_now()
        await until(lambda: jobs.value("SELECT beat_at FROM $.worker") > beaten)
        assert jobs.value("SELECT state FROM $.worker") == "stopping"
        gate.open()
    assert jobs.row(running)["result"] == "in time"
    assert jobs.state(later) == "ready"
    assert jobs.value("SELECT count(*) FROM $.worker") == 0
    assert jobs.value("SELECT count(*) FROM $.claim") == 0


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("now", [False, True], ids=["grace is over", "at once"])
async def test_what_does_not_end_is_given_back_at_once_and_has_spent_nothing(app: App, jobs: Jobs, now: bool) -> None:
    gate = Gate()

    @app.task()
    async def slow() -> None:
        await gate.wait_async()

    @app.task()
    def plain(ctx: Context) -> None:
        gate.wait(ctx)
        raise InterruptedError

    @app.task()
    def deaf() -> None:
        gate.wait()

    recorder = Recorder(app)
    ids = [app.enqueue(task.job()).id for task in (slow, plain, deaf)]
    began = 0.0
    async with running_worker(app, grace_seconds=60 if now else 0.1) as worker:
        await until(lambda: gate.entered == 3)
        began = time.monotonic()
        worker.stop(now=now)
    assert time.monotonic() - began < 10
    for job_id in ids:
        row = jobs.row(job_id)
        assert (row["shown_as"], row["attempts"], row["claims"], row["last_error"]) == ("ready", 0, 0, None)
        assert jobs.attempts(job_id) == []
    assert recorder.all(WorkerStopped)[0].given_back == 3
    gate.open()


async def test_jobs_that_never_started_are_given_back_too(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    async def slow() -> None:
        await gate.wait_async()

    ids = [app.enqueue(slow.job()).id for _ in range(8)]
    async with running_worker(app, concurrency=2, grace_seconds=0.1) as worker:
        worker.executor._prefetch = 6
        await until(lambda: gate.entered == 2)
    assert [jobs.row(job_id)["attempts"] for job_id in ids] == [0] * 8
    assert jobs.count("ready") == 8


async def test_what_a_stopped_worker_gives_back_is_what_the_next_one_runs_first(app: App, jobs: Jobs) -> None:
    gate, order = Gate(), list[int]()

    @app.task()
    async def slow(n: int) -> None:
        order.append(n)
        await gate.wait_async()

    with psycopg.connect(app.dsn) as conn:
        app.enqueue_many(conn, [slow.job(n) for n in range(300)])
    async with running_worker(app, concurrency=5, grace_seconds=0.1):
        await until(lambda: gate.entered == 5)
    gate.open()
    async with running_worker(app, concurrency=10):
        await until(lambda: len(order) >= 15)
    assert sorted(order[5:10]) == sorted(order[:5]) == list(range(5))
    assert order[10:15] == list(range(5, 10))


async def test_a_second_stop_does_not_wait(app: App, jobs: Jobs) -> None:
    gate = Gate()

    @app.task()
    async def slow() -> None:
        await gate.wait_async()

    job_id = app.enqueue(slow.job()).id
    async with running_worker(app, grace_seconds=60) as worker:
        await until(lambda: gate.entered)
        worker.stop()
        await until(lambda: worker.claimer.is_stopping)
        worker.stop(now=True)
    assert jobs.row(job_id)["shown_as"] == "ready"


@pytest.mark.parametrize("pauses", [0, 1, 5, 20])
async def test_a_stop_during_the_start_is_not_forgotten(app: App, jobs: Jobs, pauses: int) -> None:  # B18
    @app.task()
    async def work() -> None: ...

    job_id = app.enqueue(work.job()).id
    worker = app.worker(fast())
    task = asyncio.create_task(worker.run())
    for _ in range(pauses):
        await asyncio.sleep(0)
    worker.stop()
    async with asyncio.timeout(10):
        await task
    assert jobs.state(job_id) in ("ready", "done")
    assert jobs.value("SELECT count(*) FROM $.worker") == 0


@pytest.mark.session("connections of its own")
async def test_a_stopped_worker_leaves_no_connection_and_no_thread_that_beats(
    app: App, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    @app.task()
    async def work(ctx: AsyncContext) -> None:
        async with ctx.transaction():
            pass

    async with running_worker(app):
        await jobs.ended(app.enqueue(work.job()).id)
        open_now = jobs.value("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'samecommit %%'")
    assert 3 <= open_now <= 8
    await until(
        lambda: jobs.value("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'samecommit %%'") == 0
    )
    assert "samecommit heartbeat" not in {thread.name for thread in threading.enumerate()}


async def test_a_worker_can_be_stopped_from_another_thread(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    async with running_worker(app) as worker:
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(lambda: loop.call_soon_threadsafe(worker.stop))
        await until(lambda: worker.claimer.is_stopping)


async def test_signals_tell_of_a_worker_s_life(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    recorder = Recorder(app)
    async with running_worker(app) as worker:
        await jobs.ended(app.enqueue(work.job()).id)
        await recorder.one(JobsEnded, lambda signal: signal.done == 1)
        lease = worker.lease_id
    assert recorder.all(WorkerStarted)[0].lease_id == lease
    assert recorder.all(WorkerStarted)[0].kinds == ("work",)
    assert [signal.lease_id for signal in recorder.all(WorkerStopped)] == [lease]
