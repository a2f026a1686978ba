"""How attempts end: every outcome value returned and raised, by coroutines and by plain functions on threads."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.waiting import until
from tests.support.workers import fast, running_worker

from samecommit import App, Cancel, Done, Fail, Hold, RateLimited, Retry, Snooze, Task
from samecommit.outcome import Outcome
from samecommit.signals import JobFailed, PolicyBroken, ServiceFailed

OUTCOMES: dict[str, Callable[[], Outcome]] = {
    "done": lambda: Done({"n": 1}),
    "retry": lambda: Retry(after=3600, reason="not yet"),
    "snooze": lambda: Snooze(3600, "later"),
    "snooze until": lambda: Snooze(datetime.now(UTC) + timedelta(hours=1)),
    "rate limited": lambda: RateLimited(timedelta(hours=1), "slow down"),
    "hold": lambda: Hold("look at it", data={"seen": [1]}),
    "fail": lambda: Fail("no use"),
    "cancel": lambda: Cancel("not wanted"),
}
EXPECTED: dict[str, tuple[str, int, str]] = {  # state as shown, attempts spent, outcome of the attempt
    "done": ("done", 0, "done"),
    "retry": ("retrying", 1, "retry"),
    "snooze": ("scheduled", 0, "snoozed"),
    "snooze until": ("scheduled", 0, "snoozed"),
    "rate limited": ("scheduled", 0, "rate limited"),
    "hold": ("held", 0, "held"),
    "fail": ("failed", 1, "failed"),
    "cancel": ("cancelled", 0, "cancelled"),
}


def declare(app: App, *, is_async: bool, is_raised: bool) -> "Task[[str], Any]":
    def end(name: str) -> Outcome:
        outcome = OUTCOMES[name]()
        if is_raised:
            raise outcome
        return outcome

    if is_async:

        @app.task(name="work")
        async def on_loop(name: str) -> Any:
            return end(name)

        return on_loop

    @app.task(name="work")
    def on_thread(name: str) -> Any:
        return end(name)

    return on_thread


@pytest.mark.parametrize("is_raised", [False, True], ids=["returned", "raised"])
@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_every_outcome_does_what_its_table_says(app: App, jobs: Jobs, is_async: bool, is_raised: bool) -> None:
    work = declare(app, is_async=is_async, is_raised=is_raised)
    names = sorted(OUTCOMES, key=lambda name: name == "rate limited")  # it cools the kind: last
    ids = {name: app.enqueue(work.job(name)).id for name in names}
    async with running_worker(app, concurrency=1):
        for name, job_id in ids.items():
            await until(lambda job_id=job_id: jobs.attempts(job_id), what=f"an attempt of {name}")  # type: ignore[misc]
    shown = {}
    for name, job_id in ids.items():
        row = jobs.row(job_id)
        assert jobs.value("SELECT count(*) FROM $.running") == 0
        ahead = row["run_at"] - datetime.now(UTC)
        assert (timedelta(minutes=59) < ahead < timedelta(minutes=61)) is (
            EXPECTED[name][0] in ("retrying", "scheduled")
        )
        shown[name] = (row["shown_as"] or row["state"], row["attempts"], jobs.outcomes(job_id)[-1])
    assert shown == EXPECTED
    assert jobs.row(ids["done"])["result"] == {"n": 1}
    held = jobs.row(ids["hold"])
    assert (held["hold_reason"], held["hold_data"]) == ("look at it", {"seen": [1]})
    texts = {name: jobs.row(ids[name])["last_error"] for name in ("retry", "fail", "cancel")}
    assert texts == {"retry": "not yet", "fail": "no use", "cancel": "not wanted"}


async def test_any_other_return_value_is_the_result(app: App, jobs: Jobs) -> None:
    @app.task()
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task()
    def day() -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    ids = [app.enqueue(add.job(2, b=40)).id, app.enqueue(day.job()).id]
    async with running_worker(app):
        results = [(await jobs.ended(job_id))["result"] for job_id in ids]
    assert results == [42, "2026-01-02T03:04:05Z"]


async def test_plain_functions_run_side_by_side_on_threads(app: App, jobs: Jobs) -> None:
    together = threading.Barrier(4)
    names: set[str] = set()

    @app.task()
    def meet() -> None:
        names.add(threading.current_thread().name)
        together.wait(10)

    ids = [app.enqueue(meet.job()).id for _ in range(4)]
    async with running_worker(app):
        for job_id in ids:
            await jobs.ended(job_id)
    assert len(names) == 4
    assert threading.main_thread().name not in names


async def test_coroutines_run_side_by_side_up_to_the_limit(app: App, jobs: Jobs) -> None:
    import asyncio

    running: set[int] = set()
    most = 0
    go_on = asyncio.Event()

    @app.task()
    async def hang(n: int) -> None:
        nonlocal most
        running.add(n)
        most = max(most, len(running))
        await go_on.wait()
        running.discard(n)

    ids = [app.enqueue(hang.job(n)).id for n in range(7)]
    async with running_worker(app, concurrency=3):
        await until(lambda: len(running) == 3)
        go_on.set()
        for job_id in ids:
            await jobs.ended(job_id)
    assert most == 3


# ------------------------------------------------------------------------------------------------------------ failures


async def test_a_failing_job_is_tried_as_often_as_it_may_and_then_kept_as_failed(app: App, jobs: Jobs) -> None:
    seen: list[int] = []

    @app.task(max_attempts=3)
    async def breaks(n: int) -> None:
        seen.append(n)
        raise ValueError(f"attempt {len(seen)}")

    recorder = Recorder(app)
    job_id = app.enqueue(breaks.job(7)).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
    assert seen == [7, 7, 7]
    assert (row["attempts"], row["claims"], row["payload"]) == (3, 3, {"n": 7})
    assert row["last_error"].startswith("ValueError: attempt 3\n")
    assert jobs.outcomes(job_id) == ["error"] * 3
    assert [attempt["error"].split("\n")[0] for attempt in jobs.attempts(job_id)] == [
        f"ValueError: attempt {n}" for n in (1, 2, 3)
    ]
    assert [signal.will_retry for signal in recorder.all(JobFailed)] == [True, True, False]
    assert [(row[1], row[2]) for row in jobs.all("SELECT kind, cause, jobs FROM $.failure_groups")] == [
        ("ValueError: attempt #", 1)
    ]


async def test_with_one_attempt_there_is_no_retry(app: App, jobs: Jobs) -> None:
    @app.task(max_attempts=1)
    async def breaks() -> None:
        raise ValueError("once")

    job_id = app.enqueue(breaks.job()).id
    async with running_worker(app):
        assert (await jobs.ended(job_id, "failed"))["claims"] == 1


async def test_a_permanent_error_is_not_tried_again(app: App, jobs: Jobs) -> None:
    @app.task(permanent=(LookupError,))
    def breaks() -> None:
        raise KeyError("no such customer")

    job_id = app.enqueue(breaks.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
    assert (row["attempts"], row["max_attempts"]) == (1, 20)
    assert row["last_error"].startswith("KeyError: 'no such customer'")


class Odd(ExceptionGroup[Exception]):
    """A group that lies about what is in it."""

    @property
    def exceptions(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    ("raised", "state", "spent"),
    [
        (lambda: ExceptionGroup("g", [Hold("look")]), "held", 0),
        (lambda: Odd("g", [ExceptionGroup("h", [Cancel("no")])]), "cancelled", 0),
        (lambda: ExceptionGroup("g", [KeyError("x"), ExceptionGroup("h", [Hold("look")])]), "held", 0),
        (lambda: ExceptionGroup("g", [Snooze(3600, "a"), Snooze(7200, "b")]), "ready", 0),
        (lambda: ExceptionGroup("g", [ValueError("only")]), "failed", 1),
        (lambda: ExceptionGroup("g", [Hold("look"), Snooze(5)]), "ready", 1),
        (lambda: ExceptionGroup("g", [ValueError("one"), KeyError("two")]), "ready", 1),
    ],
    ids=["one", "nested", "beside an error", "two of a kind", "permanent", "two kinds", "errors"],
)
async def test_a_group_counts_as_the_outcome_in_it(
    app: App, jobs: Jobs, raised: Callable[[], BaseException], state: str, spent: int
) -> None:
    @app.task(permanent=[ValueError], backoff=lambda _: 3600.0)
    async def work() -> None:
        raise raised()

    job_id = app.enqueue(work.job()).id
    async with running_worker(app):
        await until(lambda: jobs.attempts(job_id) or jobs.state(job_id) == "cancelled", what="its end")
    row = jobs.row(job_id)
    assert (row["state"], row["attempts"]) == (state, spent)


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_an_outcome_raised_in_a_task_group_is_one(app: App, jobs: Jobs, is_async: bool) -> None:
    async def deep() -> None:
        raise Hold("look at it", data={"seen": [1]})

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(deep())
            group.create_task(asyncio.sleep(3600))

    @app.task()
    async def on_loop() -> None:
        await grouped()

    @app.task()
    def on_thread() -> None:
        asyncio.run(grouped())

    job_id = app.enqueue((on_loop if is_async else on_thread).job()).id
    async with running_worker(app):
        await until(lambda: jobs.state(job_id) == "held", what="the hold")
    assert (jobs.row(job_id)["hold_reason"], jobs.row(job_id)["hold_data"]) == ("look at it", {"seen": [1]})


async def test_the_delays_of_a_task_s_own_policy_are_kept(app: App, jobs: Jobs) -> None:
    @app.task(backoff=lambda attempts: 3600.0 * attempts)
    async def breaks() -> None:
        raise ValueError

    job_id = app.enqueue(breaks.job()).id
    async with running_worker(app):
        await until(lambda: jobs.attempts(job_id))
    assert timedelta(minutes=59) < jobs.row(job_id)["run_at"] - datetime.now(UTC) < timedelta(minutes=61)


async def test_a_broken_policy_falls_back_and_says_so(app: App, jobs: Jobs) -> None:
    @app.task(backoff=lambda _: float("nan"), max_attempts=2)
    async def breaks() -> None:
        raise ValueError

    recorder = Recorder(app)
    job_id = app.enqueue(breaks.job()).id
    async with running_worker(app):
        await jobs.ended(job_id, "failed")
    assert "answered nan" in recorder.all(PolicyBroken)[0].complaint


class Unshown(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("raised", [SystemExit(1), Unshown()], ids=["SystemExit", "no repr"])
async def test_a_policy_that_raises_falls_back_whatever_it_raises(app: App, jobs: Jobs, raised: BaseException) -> None:
    def policy(_: int) -> float:
        raise raised

    @app.task(backoff=policy, max_attempts=2)
    async def breaks() -> None:
        raise ValueError

    job_id = app.enqueue(breaks.job()).id
    async with running_worker(app):
        await jobs.ended(job_id, "failed")


class Bare(BaseException):
    """Nobody's exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Picky(Exception):
    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__(f"{a} {b} {c}")


def own_cause() -> Exception:
    error = ValueError("around")
    error.__cause__ = error
    return error


def deep() -> Exception:
    error: Exception = ValueError("at the bottom")
    for n in range(300):
        outer = ValueError(f"level {n}")
        outer.__cause__ = error
        error = outer
    return error


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Hostile(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "SystemExit(0)": (lambda: SystemExit(0), "SystemExit: 0"),
    "SystemExit text": (lambda: SystemExit("bye"), "SystemExit: bye"),
    "KeyboardInterrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "GeneratorExit": (GeneratorExit, "GeneratorExit"),
    "CancelledError": (lambda: __import__("asyncio").CancelledError("mine"), "CancelledError: mine"),
    "BaseException": (lambda: Bare("x"), "Bare: x"),
    "group": (lambda: ExceptionGroup("several", [ValueError(1), KeyError(2)]), "ExceptionGroup: several"),
    "NUL": (lambda: ValueError("a\0b"), "ValueError: a"),
    "lone surrogate": (lambda: ValueError("a\ud800b"), "ValueError: a"),
    "no str": (Mute, "Mute: (its message cannot be made: RuntimeError)"),
    "exits in str": (Exits, "Exits: (its message cannot be made: SystemExit)"),
    "no attributes": (Hostile, "Hostile: "),
    "picky": (lambda: Picky(1, 2, 3), "Picky: 1 2 3"),
    "own cause": (own_cause, "ValueError: around"),
    "deep": (deep, "ValueError: level 299"),
    "5 MB": (lambda: ValueError("x" * 5_000_000), "ValueError: xxx"),
}


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_whatever_a_handler_raises_is_a_failed_attempt_and_hurts_nobody(  # B13, B02d
    app: App, jobs: Jobs, is_async: bool
) -> None:
    def go(name: str) -> int:
        if name in RAISED:
            error = RAISED[name][0]()
            raise error
        return len(name)

    if is_async:

        @app.task(name="work", max_attempts=1)
        async def on_loop(name: str) -> int:
            return go(name)

        work = on_loop
    else:

        @app.task(name="work", max_attempts=1)
        def on_thread(name: str) -> int:
            return go(name)

        work = on_thread
    ids = {name: app.enqueue(work.job(name)).id for name in [*RAISED, *"abcde"]}
    async with running_worker(app, concurrency=50) as worker:
        for name, job_id in ids.items():
            row = await jobs.ended(job_id, "failed" if name in RAISED else "done")
            if name in RAISED:
                assert row["last_error"].startswith(RAISED[name][1]), name
                assert len(row["last_error"].encode()) <= 20_000
        last = app.enqueue(work.job("still there")).id
        assert (await jobs.ended(last))["result"] == 11
        assert worker.executor.is_empty


def itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


RESULTS: dict[str, Callable[[], Any]] = {
    "NUL": lambda: "a\0b",
    "surrogate": lambda: {"x": ["\ud800"]},
    "NaN": lambda: {"x": float("nan")},
    "infinity": lambda: float("-inf"),
    "object": object,
    "function": lambda: len,
    "self": itself,
    "deep": lambda: __import__("functools").reduce(lambda inner, _: [inner], range(50_000), 0),
    "int key": lambda: {1: 2},
    "huge": lambda: "x" * 3_000_000,
    "no attributes": lambda: Hostile(),
}


async def test_a_result_that_cannot_be_stored_is_a_failed_attempt_that_says_so(app: App, jobs: Jobs) -> None:  # B01g, h
    @app.task(max_attempts=1)
    async def make(name: str) -> Any:
        return RESULTS.get(name, lambda: name)()

    ids = {name: app.enqueue(make.job(name)).id for name in [*RESULTS, "fine"]}
    async with running_worker(app):
        for name in RESULTS:
            row = await jobs.ended(ids[name], "failed")
            assert "its result cannot be stored" in row["last_error"], name
        assert (await jobs.ended(ids["fine"]))["result"] == "fine"


NONSENSE: dict[str, Callable[[], Outcome]] = {
    "naive snooze": lambda: Snooze(datetime(2999, 1, 1)),  # noqa: DTZ001 - the point
    "text snooze": lambda: Snooze("tomorrow"),  # type: ignore[arg-type]
    "snooze NaN": lambda: Snooze(float("nan")),
    "text retry": lambda: Retry(after="soon"),  # type: ignore[arg-type]
    "retry NaN": lambda: Retry(after=float("nan")),
    "naive hold": lambda: Hold("x", until=datetime(2999, 1, 1)),  # noqa: DTZ001 - the point
    "hold with an object": lambda: Hold("x", data=object()),
    "limited by text": lambda: RateLimited("long"),  # type: ignore[arg-type]
}


async def test_an_outcome_with_nonsense_in_it_is_a_failed_attempt_and_harms_nobody(app: App, jobs: Jobs) -> None:
    @app.task(max_attempts=1)
    async def work(name: str) -> Any:
        return NONSENSE[name]() if name in NONSENSE else None

    ids = {name: app.enqueue(work.job(name)).id for name in [*NONSENSE, "fine"]}
    async with running_worker(app) as worker:
        for name in NONSENSE:
            assert (await jobs.ended(ids[name], "failed"))["last_error"], name
        await jobs.ended(ids["fine"])
        assert worker.executor.is_empty


async def test_a_delay_without_end_is_ten_years(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work(name: str) -> Any:
        return {"snooze": Snooze(1e30), "retry": Retry(after=float("inf"))}[name]

    ids = [app.enqueue(work.job(name)).id for name in ("snooze", "retry")]
    async with running_worker(app):
        for job_id in ids:
            await until(lambda job_id=job_id: jobs.attempts(job_id))  # type: ignore[misc]
    ahead = [jobs.row(job_id)["run_at"] - datetime.now(UTC) for job_id in ids]
    assert all(timedelta(days=3650) < one < timedelta(days=3654) for one in ahead)


async def test_a_payload_that_fits_no_more_is_held_for_a_person_and_its_neighbours_run(
    app: App, jobs: Jobs
) -> None:  # B17b
    @app.task()
    async def work(n: int) -> int:
        return n

    good = [app.enqueue(work.job(n)).id for n in range(3)]
    bad = [
        jobs.value("SELECT id FROM $.enqueue('work', %s::jsonb)", payload)
        for payload in ('{"n": "three"}', '{"m": 1}', "[1, 2]", "null", '"x"', '{"n": 1.5}')
    ]
    async with running_worker(app):
        for job_id in good:
            await jobs.ended(job_id)
        for job_id in bad:
            row = await jobs.ended(job_id, "held")
            assert "does not fit" in row["hold_reason"]
            assert row["attempts"] == 0


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutine", "thread"])
async def test_a_job_whose_payload_is_no_longer_kept_never_runs_with_the_defaults_of_its_task(
    app: App, jobs: Jobs, is_async: bool
) -> None:
    seen: list[str] = []

    if is_async:

        @app.task(name="work")
        async def on_loop(text: str = "all") -> None:
            seen.append(text[:5])

    else:

        @app.task(name="work")
        def on_thread(text: str = "all") -> None:
            seen.append(text[:5])

    bare, whole = (jobs.value("SELECT id FROM $.enqueue('work', %s)", Jsonb({"text": "large" * 2000})) for _ in "12")
    jobs.all("DELETE FROM $.body WHERE job_id = %s", bare)
    async with running_worker(app):
        row = await jobs.ended(bare, "held")
        await jobs.ended(whole)
    assert row["hold_reason"].startswith("its payload is no longer kept")
    assert (row["attempts"], seen) == (0, ["large"])


async def test_a_held_job_goes_on_with_the_decision_it_was_released_with(app: App, jobs: Jobs) -> None:
    from samecommit import AsyncContext

    @app.task()
    async def review(ctx: AsyncContext, n: int) -> Any:
        if ctx.job.decision is None:
            return Hold("approve?", data={"n": n})
        return {"decided": ctx.job.decision}

    job_id = app.enqueue(review.job(5)).id
    async with running_worker(app):
        await jobs.ended(job_id, "held")
        assert jobs.value("SELECT $.release(%s, '{\"ok\": true}')", job_id) == "released"
        row = await jobs.ended(job_id)
    assert (row["result"], row["attempts"], row["claims"]) == ({"decided": {"ok": True}}, 0, 2)
    assert jobs.outcomes(job_id) == ["held", "done"]


@pytest.mark.parametrize("ends", ["held", "failed"])
async def test_a_job_that_had_started_in_time_does_not_expire_when_a_person_lets_it_go_on(
    app: App, jobs: Jobs, ends: str
) -> None:
    from samecommit import AsyncContext

    @app.task(max_attempts=1)
    async def review(ctx: AsyncContext) -> Any:
        if ctx.job.claims > 1:
            return "went on"
        if ends == "held":
            return Hold("approve?")
        raise ValueError

    job_id = app.enqueue(review.using(expires_at=datetime.now(UTC) + timedelta(hours=1)).job()).id
    async with running_worker(app):
        await jobs.ended(job_id, ends)
        jobs.all("UPDATE $.job SET expires_at = clock_timestamp() - interval '1 second' WHERE id = %s", job_id)
        again = "release" if ends == "held" else "retry"
        assert jobs.value(f"SELECT $.{again}(%s)", job_id) in {"released", "retried"}
        assert (await jobs.ended(job_id))["result"] == "went on"


async def test_a_hold_whose_date_has_passed_fails_since_nobody_decided(app: App, jobs: Jobs) -> None:
    @app.task()
    async def review() -> Any:
        return Hold("approve?", until=datetime.now(UTC) + timedelta(milliseconds=50))

    job_id = app.enqueue(review.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id, "failed")
    assert row["last_error"] == "held until its date and nobody decided: approve?"
    assert row["attempts"] == 0


async def test_a_snoozed_job_comes_back_without_having_spent_an_attempt(app: App, jobs: Jobs) -> None:
    seen: list[int] = []

    @app.task(max_attempts=1)
    async def later() -> Any:
        seen.append(1)
        return Snooze(0.05) if len(seen) < 3 else None

    job_id = app.enqueue(later.job()).id
    async with running_worker(app):
        row = await jobs.ended(job_id)
    assert (len(seen), row["attempts"], row["claims"]) == (3, 0, 3)
    assert jobs.outcomes(job_id) == ["snoozed", "snoozed", "done"]


async def test_no_job_starts_early(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    ids = [app.enqueue(work.using(delay=delay).job()).id for delay in (0.2, 0.4, 0.6)]
    async with running_worker(app, config=fast()):
        rows = [await jobs.ended(job_id) for job_id in ids]
    late = [(row["claimed_at"] - row["run_at"]).total_seconds() for row in rows]
    assert min(late) >= 0
    assert max(late) < 5


async def test_an_expired_job_is_cancelled_instead_of_started(app: App, jobs: Jobs) -> None:
    seen: list[int] = []

    @app.task()
    async def work(n: int) -> None:
        seen.append(n)

    expired = app.enqueue(work.using(expires_at=datetime.now(UTC) - timedelta(seconds=1)).job(1)).id
    valid = app.enqueue(work.using(expires_at=datetime.now(UTC) + timedelta(hours=1)).job(2)).id
    async with running_worker(app):
        row = await jobs.ended(expired, "cancelled")
        await jobs.ended(valid)
    assert "expired at" in row["last_error"]
    assert seen == [2]


async def test_a_batch_of_expired_jobs_is_cancelled_whole(app: App, jobs: Jobs) -> None:
    @app.task()
    async def work() -> None: ...

    past = datetime.now(UTC) - timedelta(seconds=1)
    with psycopg.connect(app.dsn) as conn:
        app.enqueue_many(conn, [work.using(expires_at=past).job() for _ in range(450)])
    recorder = Recorder(app)
    async with running_worker(app, concurrency=500):
        await until(lambda: jobs.count("cancelled") == 450)
    assert recorder.all(ServiceFailed) == []


@pytest.mark.parametrize("kinds", ["async", "plain", "both"])
async def test_a_job_does_not_see_what_another_set_in_its_context(app: App, jobs: Jobs, kinds: str) -> None:
    of_worker = contextvars.ContextVar[str]("of_worker", default="lost")
    of_job = contextvars.ContextVar[int | None]("of_job", default=None)
    seen: list[tuple[int | None, str]] = []

    def work(number: int) -> None:
        seen.append((of_job.get(), of_worker.get()))
        of_job.set(number)

    @app.task()
    async def on_loop(number: int) -> None:
        work(number)

    @app.task()
    def on_thread(number: int) -> None:
        work(number)

    tasks = {"async": [on_loop], "plain": [on_thread], "both": [on_loop, on_thread]}[kinds]
    of_worker.set("kept")
    made = [tasks[number % len(tasks)].job(number) for number in range(300)]
    app.enqueue_many(jobs.conn, made, own_transaction=True)
    async with running_worker(app, concurrency=1):  # so a job starts where the one before it ends
        await until(lambda: len(seen) == 300)
    assert set(seen) == {(None, "kept")}
