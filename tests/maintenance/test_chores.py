"""Chores: each is done by one process at a time, a stopped one's is taken over, and each does what it says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.support.engine import Actor, enqueue, run
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.workers import fast

from samecommit.maintenance.chores import Chores
from samecommit.signals import LeasesReaped, ServiceFailed, Signals


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Process:
    """The chores of one worker process, driven turn by turn."""

    def __init__(self, dsn: str, conn: psycopg.Connection[Any], **settings: Any) -> None:
        self.clock = Clock()
        self.signals = Signals()
        self.actor = Actor(conn).register()
        self.chores = Chores(dsn, "samecommit", fast(**settings), self.signals, self.clock)
        self.chores._lease = lambda: self.actor.lease_id

    async def turn(self, seconds: float = 0.0) -> float:
        self.clock.now += seconds
        return await self.chores.run_once()


@asynccontextmanager
async def process(dsn: str, conn: psycopg.Connection[Any], **settings: Any) -> AsyncIterator[Process]:
    made = Process(dsn, conn, **settings)
    try:
        yield made
    finally:
        await made.chores._link.close()


def takers(jobs: Jobs) -> dict[str, int]:
    return dict(jobs.all("SELECT name, taken_by FROM $.chore"))


NAMES = {"promote", "reap", "kinds", "keys", "holds", "failed", "days"}


async def test_one_of_two_processes_does_each_chore(dsn: str, conn: psycopg.Connection[Any], jobs: Jobs) -> None:
    async with process(dsn, conn, reap_seconds=60) as first, process(dsn, conn, reap_seconds=60) as second:
        await first.turn()
        assert set(takers(jobs)) >= NAMES
        assert set(takers(jobs).values()) == {first.actor.lease_id}
        started = jobs.all("SELECT name, started_at FROM $.chore ORDER BY name")
        assert await second.turn() > 0
        assert jobs.all("SELECT name, started_at FROM $.chore ORDER BY name") == started


async def test_without_a_lease_no_chore_is_done(dsn: str, conn: psycopg.Connection[Any], jobs: Jobs) -> None:
    async with process(dsn, conn) as alone:
        alone.chores._lease = lambda: None
        assert await alone.turn() == 0.1
        assert jobs.value("SELECT count(*) FROM $.chore") == 0


async def test_a_stopped_process_s_chores_are_taken_over_when_their_hold_is_over(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    async with process(dsn, conn, reap_seconds=60) as first, process(dsn, conn, reap_seconds=60) as second:
        await first.turn()
        await second.turn()
        jobs.all("UPDATE $.chore SET due_at = clock_timestamp() - interval '1 second'")  # the hold of all has run out
        await second.turn(60)
        assert set(takers(jobs).values()) == {second.actor.lease_id}
        # the stopped one goes on, and puts its chore back as if it still had it
        run(conn, "chore/put_back", name="days", lease_id=first.actor.lease_id, delay_seconds=1e6, error=None)
        assert jobs.value("SELECT due_at < clock_timestamp() + interval '2 hours' FROM $.chore WHERE name = 'days'")
        await first.turn(60)
        assert set(takers(jobs).values()) == {second.actor.lease_id}


async def test_a_worker_that_leaves_hands_its_chores_over_and_not_those_that_it_had_done(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    async with process(dsn, conn) as first:
        await first.turn()
    run(conn, "worker/leave", lease_id=first.actor.lease_id)
    due = dict(jobs.all("SELECT name, due_at <= clock_timestamp() FROM $.chore"))
    assert (due["promote"], due["reap"], due["kinds"], due["days"]) == (True, True, True, False)


async def test_a_chore_that_fails_keeps_no_other_from_its_turn(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = enqueue(jobs, delay=timedelta(hours=1))
    jobs.all("UPDATE $.job SET run_at = clock_timestamp()")
    async with process(dsn, conn) as alone:
        recorder = Recorder(alone.signals)
        reap = next(chore for chore in alone.chores.chores if chore.name == "reap")

        async def broken() -> float:
            raise ValueError("no")

        monkeypatch.setattr(reap, "run", broken)
        for chore in list(alone.chores.chores):
            if chore.name == "promote":
                alone.chores.chores.remove(chore)
                alone.chores.chores.append(chore)  # behind the broken one
        await alone.turn()
        failed = recorder.all(ServiceFailed)
        assert [(signal.service, signal.error) for signal in failed] == [("chore reap", "no")]
        assert jobs.value("SELECT pos IS NOT NULL FROM $.job WHERE id = %s", job_id)


async def test_a_chore_that_has_failed_for_days_keeps_no_other_from_its_turn(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(dsn, conn) as alone:
        recorder = Recorder(alone.signals)
        first, *others = alone.chores.chores

        async def broken() -> float:
            raise ValueError("no")

        monkeypatch.setattr(first, "run", broken)
        first.failures = 5000
        await alone.turn()
        assert [signal.retry_seconds for signal in recorder.all(ServiceFailed)] == [30.0]
        assert all(chore.look_at > alone.clock.now for chore in others)


# --------------------------------------------------------------------------------------------------- what each one does


async def test_the_promoter_puts_due_jobs_in_line_and_sleeps_until_the_next(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    (now,) = enqueue(jobs, delay=timedelta(hours=1))
    enqueue(jobs, delay=timedelta(hours=2))
    jobs.all("UPDATE $.job SET run_at = clock_timestamp() - interval '1 minute' WHERE id = %s", now)
    async with process(dsn, conn) as alone:
        assert await alone.chores.promote() == 0.25
        assert jobs.all("SELECT id FROM $.job WHERE pos IS NOT NULL") == [(now,)]
        jobs.all("UPDATE $.job SET run_at = clock_timestamp() + interval '0.1 seconds' WHERE pos IS NULL")
        assert 0 < await alone.chores.promote() <= 0.1


async def test_the_promoter_finds_a_job_that_committed_late_with_an_earlier_date(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    async with process(dsn, conn) as alone:
        (first,) = enqueue(jobs, delay=timedelta(hours=1))
        jobs.all("UPDATE $.job SET run_at = clock_timestamp()")
        await alone.chores.promote()
        (late,) = enqueue(jobs, delay=timedelta(hours=1))
        jobs.all("UPDATE $.job SET run_at = clock_timestamp() - interval '1 day' WHERE id = %s", late)
        alone.clock.now = 15 * 100.0  # a moment of the far look
        await alone.chores.promote()
        assert jobs.value("SELECT count(*) FROM $.job WHERE pos IS NOT NULL") == 2
        assert first < late


async def test_the_promoter_leaves_what_is_not_ready(dsn: str, conn: psycopg.Connection[Any], jobs: Jobs) -> None:
    ids = enqueue(jobs, 4, delay=timedelta(hours=1))
    jobs.all("SELECT $.hold(%s, 'x')", ids[0])
    jobs.all("UPDATE $.job SET blocked_by = 'kind' WHERE id = %s", ids[1])
    jobs.all("UPDATE $.job SET state = 'failed', since_at = clock_timestamp() WHERE id = %s", ids[2])
    jobs.all("UPDATE $.job SET run_at = clock_timestamp()")
    async with process(dsn, conn) as alone:
        await alone.chores.promote()
    assert jobs.all("SELECT id FROM $.job WHERE pos IS NOT NULL") == [(ids[3],)]


async def test_the_reaper_ends_dead_leases_in_one_round_and_tells(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    ids = enqueue(jobs, 5)
    dead = Actor(conn).register()
    dead.claim()
    jobs.all("UPDATE $.worker SET expires_at = clock_timestamp() - interval '1 second'")
    async with process(dsn, conn) as alone:
        recorder = Recorder(alone.signals)
        await alone.chores.reap()
        assert recorder.all(LeasesReaped) == [LeasesReaped(leases=1, jobs=5, held=0)]
        assert {jobs.row(job_id)["attempts"] for job_id in ids} == {1}
        assert jobs.value("SELECT count(*) FROM $.claim") == 0
        assert jobs.all("SELECT lease_id FROM $.worker") == [(alone.actor.lease_id,)]


async def test_a_lease_whose_row_is_locked_keeps_no_other_dead_lease(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    """Behind a pooler, a process that is stopped in the middle of a beat keeps its row locked for a minute."""
    (job_id,) = enqueue(jobs)
    stuck, dead = Actor(conn).register(), Actor(conn).register()
    dead.claim()
    jobs.all("UPDATE $.worker SET expires_at = clock_timestamp() - interval '1 second'")
    async with process(dsn, conn) as alone:
        with psycopg.connect(dsn) as beat:
            beat.execute("SELECT FROM samecommit.worker WHERE lease_id = %s FOR UPDATE", [stuck.lease_id])
            await alone.chores.reap()
            assert jobs.state(job_id) == "ready"
        await alone.chores.reap()
    assert jobs.all("SELECT lease_id FROM $.worker") == [(alone.actor.lease_id,)]


async def test_the_reaper_comes_back_at_once_while_there_is_more(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    enqueue(jobs, 120)
    dead = Actor(conn).register()
    while dead.claim(1):
        pass
    dead.die()
    async with process(dsn, conn, reap_seconds=5.0) as alone:
        assert await alone.chores.reap() < 0.1
        assert await alone.chores.reap() == 5.0
    assert jobs.value("SELECT count(*) FROM $.job WHERE claim_id IS NOT NULL") == 0


async def test_cancel_requests_of_jobs_that_have_ended_are_swept(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    enqueue(jobs, 2)
    actor = Actor(conn).register()
    pairs = actor.claim()
    for job_id, _ in pairs:
        jobs.all("SELECT $.cancel(%s)", job_id)
    actor.finish(pairs[:1])
    async with process(dsn, conn) as alone:
        await alone.chores.reap()
    assert jobs.all("SELECT job_id FROM $.cancellation") == [(pairs[1][0],)]


async def test_unknown_kinds_step_aside_only_when_a_worker_has_lived_long_enough_to_know(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    (unknown,) = enqueue(jobs, kind="unknown", priority=5)
    (known,) = enqueue(jobs)
    async with process(dsn, conn) as alone:
        await alone.chores.sort_kinds()
        assert jobs.row(unknown)["blocked_by"] is None
        jobs.all("UPDATE $.worker SET started_at = started_at - interval '1 minute'")
        jobs.all("UPDATE $.job SET run_at = run_at - interval '1 minute'")
        await alone.chores.sort_kinds()
        assert [jobs.row(one)["blocked_by"] for one in (unknown, known)] == ["kind", None]
        Actor(conn, kinds=("unknown",)).register()
        await alone.chores.sort_kinds()
        assert jobs.row(unknown)["blocked_by"] is None
        assert jobs.value("SELECT pos IS NOT NULL FROM $.job WHERE id = %s", unknown)


async def test_a_job_that_stepped_aside_and_was_put_off_does_not_come_back_before_its_time(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    put_off = "SELECT id FROM $.enqueue('late', unique_key => 'k', on_conflict => 'replace', delay => %s)"
    job_id = jobs.value(put_off, timedelta(0))
    jobs.all("UPDATE $.job SET pos = NULL, blocked_by = 'kind'")
    assert jobs.value(put_off, timedelta(hours=1)) == job_id
    newcomer = Actor(conn, kinds=("late",)).register()
    async with process(dsn, conn) as alone:
        await alone.chores.sort_kinds()
        assert newcomer.claim() == []
        assert jobs.all("SELECT blocked_by, pos FROM $.job") == [(None, None)]
        jobs.all("UPDATE $.job SET run_at = clock_timestamp()")
        await alone.chores.promote()
        assert [claimed for claimed, _ in newcomer.claim()] == [job_id]


async def test_a_job_of_an_unknown_kind_that_somebody_has_locked_keeps_no_other_in_line(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    ids = enqueue(jobs, 3, kind="unknown")
    jobs.all("UPDATE $.job SET run_at = run_at - interval '1 minute'")
    async with process(dsn, conn) as alone:
        jobs.all("UPDATE $.worker SET started_at = started_at - interval '1 minute'")
        with psycopg.connect(dsn) as stranger:
            stranger.execute("SELECT FROM samecommit.job WHERE id = %s FOR UPDATE", [ids[1]])
            await alone.chores.sort_kinds()
            assert [jobs.row(one)["blocked_by"] for one in ids] == ["kind", None, "kind"]
        await alone.chores.sort_kinds()
        assert jobs.row(ids[1])["blocked_by"] == "kind"


async def test_with_no_worker_at_all_nothing_steps_aside(dsn: str, conn: psycopg.Connection[Any], jobs: Jobs) -> None:
    enqueue(jobs, kind="unknown")
    jobs.all("UPDATE $.job SET run_at = run_at - interval '1 minute'")
    async with process(dsn, conn) as alone:
        alone.actor.die()
        await alone.chores.sort_kinds()
    assert jobs.all("SELECT blocked_by FROM $.job") == [(None,)]


async def test_holds_expire_at_their_date_and_not_before(dsn: str, conn: psycopg.Connection[Any], jobs: Jobs) -> None:
    ids = enqueue(jobs, 3)
    for job_id, until in zip(ids, (-1, 3600, None), strict=True):
        at = None if until is None else datetime.now(UTC) + timedelta(seconds=until)
        jobs.all("SELECT $.hold(%s, 'approve?', until_at => %s)", job_id, at)
    async with process(dsn, conn) as alone:
        assert await alone.chores.expire_holds() == 10.0
    assert [jobs.state(job_id) for job_id in ids] == ["failed", "held", "held"]
    assert jobs.row(ids[0])["last_error"] == "held until its date and nobody decided: approve?"


async def test_failed_jobs_move_to_the_history_at_their_age(
    dsn: str, conn: psycopg.Connection[Any], jobs: Jobs
) -> None:
    old, young = enqueue(jobs, 2)
    actor = Actor(conn).register()
    actor.settle(actor.claim(), "failed", "failed", errors=["x", "x"])
    jobs.all("UPDATE $.job SET since_at = since_at - interval '31 days' WHERE id = %s", old)
    async with process(dsn, conn) as alone:
        assert await alone.chores.age_failed() == 60.0
    assert jobs.all("SELECT id FROM $.job") == [(young,)]
    assert jobs.all("SELECT id, state FROM $.job_history") == [(old, "failed")]
    assert jobs.outcomes(old) == ["failed"]
