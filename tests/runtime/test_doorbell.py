"""The bell: whoever sleeps hears of every commit, and nobody else pays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from tests.support.jobs import Jobs
from tests.support.waiting import until

from samecommit.runtime.doorbell import Doorbell
from samecommit.runtime.listener import Listener
from samecommit.runtime.service import Service
from samecommit.signals import Signals
from samecommit.storage.link import AsyncLink

pytestmark = [pytest.mark.pg15, pytest.mark.session("the doorbell")]


def channel(jobs: Jobs) -> str:
    number = jobs.value("SELECT 'samecommit.queue'::regclass::oid::bigint")
    return f"samecommit_{number}"


class Sleeper:
    """A bell with its loop, and what it was told."""

    def __init__(self, dsn: str) -> None:
        self.granted = 0
        self.link = AsyncLink(dsn, "samecommit", "bell")
        self.bell = Doorbell(self.link, self._grant)
        self.service = Service("bell", self.bell.run_once, Signals())

    def _grant(self) -> None:
        self.granted += 1


@asynccontextmanager
async def sleeper(dsn: str, *queue_ids: int) -> AsyncIterator[Sleeper]:
    made = Sleeper(dsn)
    made.bell.watch(queue_ids or (1,))
    made.service.start()
    try:
        yield made
    finally:
        await made.service.stop(0.05)
        await made.link.close()


@asynccontextmanager
async def listener(dsn: str, name: str) -> AsyncIterator[tuple[list[str], list[str]]]:
    heard: list[str] = []
    gaps: list[str] = []
    link = AsyncLink(dsn, "samecommit", "listen")
    service = Service("listener", Listener(link, name, heard.append, lambda: gaps.append("gap")).run_once, Signals())
    service.start()
    try:
        await until(lambda: gaps)
        yield heard, gaps
    finally:
        await service.stop(0.05)
        await link.close()


async def test_a_commit_is_silent_while_nobody_sleeps_and_heard_when_somebody_does(dsn: str, jobs: Jobs) -> None:
    async with listener(dsn, channel(jobs)) as (heard, _), sleeper(dsn) as one:
        jobs.all("SELECT $.enqueue('work')")
        one.bell.set_idle(True)
        await until(lambda: one.bell.is_held)
        assert one.granted == 1
        jobs.all("SELECT $.enqueue('work')")
        await until(lambda: heard)
        one.bell.set_idle(False)
        await until(lambda: jobs.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0)
        jobs.all("SELECT $.enqueue('work')")
        jobs.all("SELECT pg_notify(%s, 'end')", channel(jobs))
        await until(lambda: "end" in heard)
    assert heard == ["1", "end"]


async def test_the_bell_is_granted_only_when_the_silent_producers_have_committed(dsn: str, jobs: Jobs) -> None:
    async with sleeper(dsn) as one:
        with psycopg.connect(dsn) as producer:
            producer.execute("SELECT samecommit.enqueue('work')")
            one.bell.set_idle(True)
            await until(lambda: jobs.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            assert not one.bell.is_held
            producer.commit()
            await until(lambda: one.bell.is_held)
        assert one.granted == 1
        assert jobs.count() == 1


async def test_whoever_waits_for_the_bell_is_heard_of_already(dsn: str, jobs: Jobs) -> None:
    async with listener(dsn, channel(jobs)) as (heard, _), sleeper(dsn) as one:
        with psycopg.connect(dsn) as silent:
            silent.execute("SELECT samecommit.enqueue('work')")
            one.bell.set_idle(True)
            await until(lambda: jobs.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            jobs.all("SELECT $.enqueue('work')")
            await until(lambda: heard)
            assert not one.bell.is_held


async def test_the_bell_goes_to_the_next_when_its_holder_dies(dsn: str, jobs: Jobs) -> None:
    async with sleeper(dsn) as first, sleeper(dsn) as second:
        first.bell.set_idle(True)
        await until(lambda: first.bell.is_held)
        second.bell.set_idle(True)
        await asyncio.sleep(0.05)
        assert not second.bell.is_held
        assert first.link._conn is not None
        await first.service.stop(0.05)
        jobs.all("SELECT pg_terminate_backend(%s)", first.link._conn.info.backend_pid)
        await until(lambda: second.bell.is_held)


async def test_a_worker_of_several_queues_holds_every_bell_before_it_relies_on_them(dsn: str, jobs: Jobs) -> None:
    async with sleeper(dsn, 1, 2, 65, 130) as one:
        assert one.bell.slots == (1, 2)
        with psycopg.connect(dsn) as producer:
            producer.execute("SELECT pg_advisory_xact_lock_shared(hashoid('samecommit.queue'::regclass), 2)")
            one.bell.set_idle(True)
            await until(lambda: one.bell._held == {1})
            assert not one.bell.is_held
            assert one.granted == 0
        await until(lambda: one.bell.is_held)
        assert one.granted == 1
        held = jobs.all(
            "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' ORDER BY 1"
        )
        assert [row[0] for row in held] == [1, 2]


async def test_a_waiting_worker_holds_no_snapshot_for_long(dsn: str, jobs: Jobs) -> None:
    async with sleeper(dsn) as first, sleeper(dsn) as second:
        first.bell.set_idle(True)
        await until(lambda: first.bell.is_held)
        second.bell.set_idle(True)
        seen = set()

        def starts() -> bool:
            rows = jobs.all(
                "SELECT query_start FROM pg_stat_activity WHERE query LIKE '%%take_bell%%' AND wait_event = 'advisory'"
            )
            seen.update(rows)
            return len(seen) >= 3

        await until(starts)


async def test_a_listener_whose_connection_is_cut_listens_again_and_looks_once(dsn: str, jobs: Jobs) -> None:  # B19
    async with listener(dsn, channel(jobs)) as (heard, gaps):
        jobs.all(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'samecommit listen' AND datname = current_database()"
        )
        await until(lambda: len(gaps) == 2)
        jobs.all("SELECT pg_notify(%s, 'again')", channel(jobs))
        await until(lambda: "again" in heard)


async def test_a_listener_is_never_inside_a_transaction(dsn: str, jobs: Jobs) -> None:  # B27c
    async with listener(dsn, channel(jobs)):
        states: set[Any] = {
            row[0]
            for row in jobs.all("SELECT state FROM pg_stat_activity WHERE application_name = 'samecommit listen'")
        }
    assert states <= {"idle", "active"}


def test_two_phase_commit_works_with_the_bell_switched_off(dsn: str, jobs: Jobs) -> None:
    with psycopg.connect(dsn, autocommit=True) as holder, psycopg.connect(dsn) as conn:
        holder.execute("SELECT pg_advisory_lock(hashoid('samecommit.queue'::regclass), 1)")
        conn.execute("SET samecommit.doorbell = off")
        conn.commit()
        before = jobs.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        conn.execute("SELECT samecommit.enqueue('work')")
        assert jobs.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == before
        conn.commit()
    assert jobs.count() == 1


def test_many_queues_take_few_locks_in_the_caller_s_transaction(dsn: str, jobs: Jobs) -> None:
    jobs.all("SELECT $.create_queue('q' || n) FROM generate_series(1, 300) AS n")
    with psycopg.connect(dsn) as conn:
        for n in range(1, 301):
            conn.execute("SELECT samecommit.enqueue('work', queue => %s)", [f"q{n}"])
        assert jobs.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") <= 64
