"""Which job comes next: priorities, several queues, unknown kinds, paused queues, kinds that cool down."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.support.engine import Actor, enqueue, reap, run
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.waiting import until
from tests.support.workers import running_worker

from samecommit import App, AsyncContext, RateLimited, Task
from samecommit.signals import ServiceFailed
from samecommit.storage.link import AsyncLink
from samecommit.worker import claimer


async def test_higher_priorities_start_first(app: App, jobs: Jobs) -> None:
    order: list[int] = []

    @app.task()
    async def work(ctx: AsyncContext) -> None:
        order.append(ctx.job.priority)

    wanted = [-100, 5, 0, 100, 5, -1, 0, 99]
    ids = [app.enqueue(work.using(priority=priority).job()).id for priority in wanted]
    async with running_worker(app, concurrency=1):
        for job_id in ids:
            await jobs.ended(job_id)
    assert order == sorted(wanted, reverse=True)


async def test_within_a_priority_jobs_start_in_the_order_of_their_enqueue(app: App, jobs: Jobs) -> None:
    order: list[int] = []

    @app.task()
    async def work(n: int) -> None:
        order.append(n)

    for n in range(50):
        app.enqueue(work.job(n))
    async with running_worker(app, concurrency=1):
        await until(lambda: len(order) == 50)
    assert order == list(range(50))


async def test_a_first_job_of_a_new_priority_does_not_wait(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    async with running_worker(app):
        for priority in (3, -7, 100, -100):
            began = time.monotonic()
            await jobs.ended(app.enqueue(work.using(priority=priority).job()).id)
            assert time.monotonic() - began < 3


async def test_a_deep_queue_does_not_starve_the_others(app: App, jobs: Jobs) -> None:
    order: list[str] = []

    @app.task(queue="deep")
    async def deep() -> None:
        order.append("deep")

    @app.task(queue="shallow")
    async def shallow() -> None:
        order.append("shallow")

    app.migrate()
    jobs.all("SELECT $.create_queue('deep'), $.create_queue('shallow')")
    with psycopg.connect(app.dsn) as conn:
        for _ in range(300):
            deep.enqueue(conn)
        for _ in range(10):
            shallow.enqueue(conn)
    async with running_worker(app, concurrency=5):
        await until(lambda: len(order) == 310)
    assert max(n for n, name in enumerate(order) if name == "shallow") < 150


async def test_a_job_with_a_moment_that_python_has_not_delays_nobody(app: App, jobs: Jobs) -> None:
    """Whoever enqueues by SQL may give one. The driver refuses the whole answer, in which others were claimed, too."""

    @app.task()
    async def work() -> None: ...

    odd = ("run_at => '-infinity'", "run_at => '4000-01-01 BC'", "expires_at => 'infinity'")
    ids = [
        jobs.value(f"SELECT id FROM $.enqueue('work', {option})")
        for option in ("priority => 0", *odd, *["priority => 0"] * 3)
    ]
    recorder = Recorder(app)
    async with running_worker(app):
        for job_id in ids:
            await until(lambda job_id=job_id: jobs.state(job_id) == "done", what=f"job {job_id}")  # type: ignore[misc]
    assert recorder.all(ServiceFailed) == []


async def test_a_worker_works_on_the_queues_that_it_is_given(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    jobs.all("SELECT $.create_queue('mine'), $.create_queue('theirs')")
    mine = app.enqueue(work.using(queue="mine").job()).id
    theirs = app.enqueue(work.using(queue="theirs").job()).id
    async with running_worker(app, queues=("mine",)):
        await jobs.ended(mine)
        await jobs.ended(app.enqueue(work.using(queue="mine").job()).id)
        assert jobs.state(theirs) == "ready"
        assert jobs.all("SELECT queues FROM $.worker") == [(["mine"],)]


async def test_a_queue_made_after_the_start_is_worked_on(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    async with running_worker(app):
        jobs.all("SELECT $.create_queue('new')")
        await jobs.ended(app.enqueue(work.using(queue="new").job()).id)


async def test_a_renamed_task_does_the_jobs_of_its_old_name(app: App, jobs: Jobs) -> None:
    @app.task(name="new", aliases=("old",))
    async def work(ctx: AsyncContext) -> str:
        return ctx.job.kind

    old = jobs.value("SELECT id FROM $.enqueue('old')")
    new = app.enqueue(work.job()).id
    async with running_worker(app):
        assert (await jobs.ended(old))["result"] == "old"
        assert (await jobs.ended(new))["result"] == "new"


# ------------------------------------------------------------------------------------------------------- unknown kinds


async def test_unknown_kinds_at_the_head_of_the_line_delay_nobody(app: App, jobs: Jobs) -> None:  # B17a
    @app.task()
    async def known() -> None: ...

    unknown = enqueue(jobs, 30, kind="unknown")
    mine = app.enqueue(known.job()).id
    async with running_worker(app):
        await jobs.ended(mine)
    assert {jobs.state(job_id) for job_id in unknown} == {"ready"}


async def test_unknown_kinds_step_aside_and_come_back_with_a_worker_that_knows_them(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task()
    async def known() -> None: ...

    fetch = AsyncLink.fetch

    async def hurried(self: Any, label: str, **values: Any) -> list[Any]:
        if label == "chore/set_aside":
            values["patience_seconds"] = 0.05
        return await fetch(self, label, **values)

    monkeypatch.setattr(AsyncLink, "fetch", hurried)
    (unknown,) = enqueue(jobs, kind="unknown")
    async with running_worker(app):
        await until(lambda: jobs.row(unknown)["blocked_by"] == "kind")

    app2 = App(app.dsn)

    @app2.task(name="unknown")
    async def at_last() -> str:
        return "known now"

    async with running_worker(app2):
        row = await jobs.ended(unknown)
    assert (row["result"], row["attempts"]) == ("known now", 0)


# ---------------------------------------------------------------------------------------------------------------- pause


async def test_a_paused_queue_starts_nothing_and_goes_on_when_resumed(app: App, jobs: Jobs) -> None:  # B25b
    go_on = asyncio.Event()

    @app.task()
    async def work(waits: bool) -> None:
        if waits:
            await go_on.wait()

    running = app.enqueue(work.job(waits=True)).id
    async with running_worker(app):
        await until(lambda: jobs.state(running) == "running")
        jobs.all("SELECT $.pause('default', 'maintenance')")
        await asyncio.sleep(claimer._VIEW_SECONDS + 0.2)  # what a worker knows of its queues may be that old
        waiting = [app.enqueue(work.job(waits=False)).id for _ in range(3)]
        go_on.set()
        await jobs.ended(running)
    async with running_worker(app):  # a restart loses no pause
        await asyncio.sleep(0.3)
        assert {jobs.state(job_id) for job_id in waiting} == {"ready"}
        began = time.monotonic()
        jobs.all("SELECT $.resume('default')")
        for job_id in waiting:
            await jobs.ended(job_id)
        assert time.monotonic() - began < 3


async def test_a_pause_until_a_date_ends_by_itself(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    jobs.all("SELECT $.pause('default', until_at => clock_timestamp() + interval '0.5 seconds')")
    until_at = jobs.value("SELECT paused_until FROM $.queue WHERE name = 'default'")
    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id)
    assert row["claimed_at"] >= until_at


# ------------------------------------------------------------------------------------------------------------ cool down


async def test_a_rate_limited_kind_cools_down_for_every_worker_and_other_kinds_go_on(app: App, jobs: Jobs) -> None:
    calls: list[str] = []
    is_limited = True

    def declare(to: App, name: str) -> None:
        @to.task(name="model")
        async def model() -> Any:
            calls.append(name)
            return RateLimited(3.0, "429") if is_limited else None

        @to.task(name="other")
        async def other() -> None: ...

    first, second = app, App(app.dsn)
    declare(first, "first")
    declare(second, "second")
    ids = enqueue(jobs, 20, kind="model")
    async with running_worker(first, concurrency=1), running_worker(second, concurrency=1):
        await until(lambda: calls)
        await until(lambda: jobs.value("SELECT count(*) FROM $.cooldown"))
        await asyncio.sleep(claimer._VIEW_SECONDS)  # what the other knows may be that old
        during = len(calls)
        for job_id in enqueue(jobs, 5, kind="other"):
            await jobs.ended(job_id)
        assert len(calls) == during <= 20
        is_limited = False
        for job_id in ids:
            await jobs.ended(job_id, timeout_seconds=20)
    rows = [jobs.row(job_id) for job_id in ids]
    assert {row["attempts"] for row in rows} == {0}
    assert jobs.value("SELECT count(*) FROM $.cooldown WHERE until_at > clock_timestamp()") == 0


async def test_what_waits_for_a_slot_while_its_kind_cools_down_goes_to_the_end_of_the_line(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the head every look of every worker would walk over it until the kind is through."""
    calls: list[str] = []

    @app.task()
    async def model() -> Any:
        calls.append("model")
        return RateLimited(60, "429")

    async with running_worker(app, concurrency=1) as worker:
        monkeypatch.setattr(worker.executor, "room", lambda: 0 if calls else 6)
        with psycopg.connect(app.dsn) as conn:
            app.enqueue_many(conn, [model.job() for _ in range(6)])
        newest = jobs.value("SELECT max(pos) FROM $.job")
        await until(lambda: jobs.value("SELECT count(*) FROM $.job WHERE claims = 0 AND pos > %s", newest) == 5)
    assert len(calls) == 1


async def test_jobs_for_later_come_in_line_when_their_time_has_come(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    jobs.all(
        "INSERT INTO $.job (queue_id, kind, run_at, payload) "
        "SELECT 1, 'work', clock_timestamp() + interval '0.3 seconds' * (n %% 3), '{}' FROM generate_series(1, 300) AS n"
    )
    async with running_worker(app):
        await until(lambda: jobs.count("done") == 300, 20)
    assert jobs.value("SELECT count(*) FROM $.job_history WHERE claimed_at < run_at") == 0


@pytest.mark.parametrize(
    "doorbell",
    [
        pytest.param(True, id="with a bell", marks=pytest.mark.session("the doorbell")),
        pytest.param(False, id="polling"),
    ],
)
async def test_an_idle_worker_hears_of_every_way_into_the_line(app: App, jobs: Jobs, doorbell: bool) -> None:
    @app.task(max_attempts=1)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError

    def cancelled_and_retried() -> int:
        job_id = int(jobs.value("SELECT id FROM $.enqueue('work', delay => '1 hour')"))
        jobs.all("SELECT $.cancel(%s)", job_id)
        jobs.all("SELECT $.retry(%s)", job_id)
        return job_id

    def held_and_released() -> int:
        job_id = int(jobs.value("SELECT id FROM $.enqueue('work', delay => '1 hour')"))
        jobs.all("SELECT $.hold(%s, 'x')", job_id)
        jobs.all("SELECT $.release(%s)", job_id)
        return job_id

    def made_due() -> int:
        job_id = int(jobs.value("SELECT id FROM $.enqueue('work', delay => '1 hour')"))
        jobs.all("SELECT $.retry(%s)", job_id)
        return job_id

    def replayed() -> int:
        old = int(jobs.value("SELECT id FROM $.enqueue('work', delay => '1 hour')"))
        return int(jobs.value("SELECT id FROM $.replay(%s)", [old]))

    ways: list[Callable[[], int]] = [
        lambda: app.enqueue(work.job()).id,
        lambda: int(jobs.value("SELECT id FROM $.enqueue('work')")),
        lambda: int(jobs.value("SELECT id FROM $.enqueue('work', delay => '0.1 seconds')")),
        cancelled_and_retried,
        held_and_released,
        made_due,
        replayed,
    ]
    async with running_worker(app, doorbell=doorbell, poll_seconds=0.2) as worker:
        for way in ways:
            if doorbell:
                await until(lambda: worker._bell.is_held)
            began = time.monotonic()
            await jobs.ended(way())
            assert time.monotonic() - began < 1.5, way  # less than the sleep of a worker that holds its bells


async def test_a_job_that_was_locked_while_claims_passed_by_starts_soon_after(
    app: App, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    started: list[int] = []

    @app.task()
    async def work(n: int) -> None:
        started.append(n)
        await asyncio.sleep(0.02)

    ids = [app.enqueue(work.job(n)).id for n in range(300)]
    async with running_worker(app, concurrency=5) as worker:
        await until(lambda: len(started) > 50, timeout_seconds=30)
        for _ in range(100):  # the marks keep that many transactions behind
            conn.execute("SELECT pg_current_xact_id()")
        with psycopg.connect(dsn) as stranger:
            row = stranger.execute(
                "SELECT pos FROM samecommit.job WHERE id = %s AND claims = 0 FOR UPDATE SKIP LOCKED", [ids[299]]
            ).fetchone()
            assert row is not None
            pos = row[0]
            await until(lambda: len(started) == 299, timeout_seconds=30)
            await until(lambda: all(lane.low >= pos for lane in worker.claimer._marks.lanes.values()))
        await until(lambda: 299 in started, timeout_seconds=8)


async def test_what_waits_behind_long_jobs_is_left_to_other_workers(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was quick claims ahead of its slots, and may get long jobs then."""
    go_on = asyncio.Event()
    entered, ended = list[int](), list[int]()

    def declare(to: App, is_long: bool) -> Task[[int], Any]:
        @to.task()
        async def work(n: int) -> None:
            if is_long:
                entered.append(n)
                await go_on.wait()
            ended.append(n)

        return work

    work, other = declare(app, is_long=True), App(app.dsn)
    declare(other, is_long=False)
    async with running_worker(app, concurrency=2) as first:
        monkeypatch.setattr(first.executor, "room", lambda: 0 if entered else 8)
        with psycopg.connect(app.dsn) as conn:
            app.enqueue_many(conn, [work.job(n) for n in range(8)])
        await until(lambda: len(entered) == 2)
        assert jobs.value("SELECT count(*) FROM $.job WHERE claim_id IS NOT NULL") == 8
        async with running_worker(other):
            await until(lambda: len(ended) == 6, timeout_seconds=5)
        assert not set(ended) & set(entered)
        go_on.set()
        await until(lambda: len(ended) == 8)
    assert jobs.value("SELECT count(*) FROM $.attempts WHERE outcome <> 'done'") == 0


async def test_jobs_of_a_dead_worker_take_all_the_slots_that_end_together(
    app: App, jobs: Jobs, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots that end within milliseconds are filled by claims of one job each, and there is no time to look back again."""
    order: list[int] = []

    @app.task()
    async def work(ctx: AsyncContext) -> None:
        order.append(ctx.job.id)
        await asyncio.sleep(0.3)

    dead = Actor(conn).register()
    lost = enqueue(jobs, 8)
    assert len(dead.claim()) == 8
    enqueue(jobs, 80)
    async with running_worker(app, concurrency=8, chores=False) as worker:
        room = worker.executor.room
        monkeypatch.setattr(worker.executor, "room", lambda: min(1, room()))
        await until(lambda: len(order) >= 24)
        dead.die()
        reap(conn)
        await until(lambda: set(lost) <= set(order), timeout_seconds=10)
    first, last = min(map(order.index, lost)), max(map(order.index, lost))
    assert last - first < 16, "in one turn of the slots, or two if it came in the middle of one"


async def test_jobs_of_a_dead_worker_start_before_the_backlog_and_in_their_order(
    app: App, jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    order: list[int] = []

    @app.task()
    async def work(ctx: AsyncContext) -> None:
        order.append(ctx.job.id)
        await asyncio.sleep(0.005)

    dead = Actor(conn).register()
    lost = enqueue(jobs, 3)
    assert len(dead.claim()) == 3
    backlog = enqueue(jobs, 400)
    async with running_worker(app, concurrency=1, chores=False):
        await until(lambda: len(order) > 20)
        dead.die()
        reap(conn)
        reaped_at = len(order)
        await until(lambda: set(lost) <= set(order))
        overtaken = max(order.index(job_id) for job_id in lost) - reaped_at
    assert [job_id for job_id in order if job_id in lost] == lost
    assert [job_id for job_id in order if job_id not in lost] == backlog[: len(order) - 3]
    assert overtaken < 200


async def test_a_job_of_a_dead_worker_overtakes_its_own_priority_only(
    app: App, jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    order: list[int] = []

    @app.task()
    async def work(ctx: AsyncContext) -> None:
        order.append(ctx.job.id)

    dead = Actor(conn).register()
    (lost,) = enqueue(jobs)
    dead.claim()
    dead.die()
    reap(conn)
    same, better = enqueue(jobs), enqueue(jobs, priority=1)
    async with running_worker(app):
        await until(lambda: len(order) == 3)
    assert order == [*better, lost, *same]


async def test_a_job_of_a_dead_worker_whose_kind_nobody_knows_steps_out_of_line(
    app: App, jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    dead = Actor(conn).register()
    (lost,) = enqueue(jobs)
    dead.claim()
    dead.die()
    reap(conn)

    @app.task()
    async def other() -> None: ...

    async with running_worker(app):
        run(conn, "chore/set_aside", room=10, patience_seconds=0.0)
    assert jobs.value("SELECT blocked_by FROM $.job WHERE id = %s", lost) == "kind"


async def test_a_worker_that_took_a_suspect_beside_a_long_job_does_not_wait_for_that_one(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "_SUSPECT_PATIENCE_SECONDS", 0.1)
    go_on = asyncio.Event()
    started = list[int]()

    @app.task()
    async def work(ctx: AsyncContext, is_long: bool = False) -> None:
        started.append(ctx.job.id)
        if is_long:
            await go_on.wait()

    long = app.enqueue(work.job(is_long=True)).id
    async with running_worker(app, concurrency=5):
        await until(lambda: started == [long])
        (suspect,) = enqueue(jobs, delay=timedelta(hours=1))
        jobs.all("UPDATE $.job SET run_at = clock_timestamp(), blocked_by = 'suspect', lost = 2 WHERE id = %s", suspect)
        await until(lambda: suspect in started)
        for job_id in enqueue(jobs, 20):
            await jobs.ended(job_id)
        assert jobs.state(long) == "running"
        go_on.set()
        await jobs.ended(long)
