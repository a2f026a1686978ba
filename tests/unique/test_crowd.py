"""Many callers and few keys: 32 threads and 32 tasks, in random order, a tenth rolled back, while a worker ends the jobs."""

import asyncio
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from tests.support.jobs import Jobs
from tests.support.waiting import until
from tests.support.workers import running_worker
from tests.unique.keys import BROKEN, Keys

from samecommit import App, AsyncContext
from samecommit.job import Enqueued
from samecommit.task import Task

pytestmark = [pytest.mark.pg15, pytest.mark.timeout(120)]

CALLERS, KEYS, SEED = 32, 10, 20261130
SECONDS, ENOUGH = 5.0, 100
MOST_SECONDS = 40.0  # until enough were created: behind a pooler all share a few connections


@dataclass
class Crowd:
    """What the callers do, and what they were told."""

    app: App
    task: Task[[str], None]
    began: float = field(default_factory=time.monotonic)
    created: list[int] = field(default_factory=list[int])
    found: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_over(self) -> bool:
        seconds = time.monotonic() - self.began
        return seconds > MOST_SECONDS or (seconds > SECONDS and len(self.created) > ENOUGH)

    def batch(self, chance: random.Random) -> list[Any]:
        keys = [f"k{chance.randrange(KEYS)}" for _ in range(chance.choice([1, 1, 3, 8]))]
        policy: Any = chance.choice(["existing", "existing", "replace"])
        return [self.task.using(unique=key, on_conflict=policy).job(key) for key in keys]

    def note(self, jobs: list[Any], answers: list[Enqueued[None]]) -> None:
        with self.lock:
            for job, answer in zip(jobs, answers, strict=True):
                if answer.created:
                    self.created.append(answer.id)
                else:
                    self.found.append((answer.id, job.options.values["unique_key"]))

    def push(self, number: int) -> None:
        """One thread: a transaction after the other, on one connection."""
        chance = random.Random(SEED + number)
        with psycopg.connect(self.app.dsn) as conn:
            while not self.is_over:
                jobs = self.batch(chance)
                answers = list(self.app.enqueue_many(conn, jobs))
                if chance.random() < 0.1:
                    conn.rollback()
                else:
                    conn.commit()
                    self.note(jobs, answers)

    async def push_async(self, number: int) -> None:
        """One asynchronous task, likewise."""
        chance = random.Random(SEED + 1000 + number)
        async with await psycopg.AsyncConnection.connect(self.app.dsn) as conn:
            while not self.is_over:
                jobs = self.batch(chance)
                answers = list(await self.app.enqueue_many(conn, jobs))
                if chance.random() < 0.1:
                    await conn.rollback()
                else:
                    await conn.commit()
                    self.note(jobs, answers)


def look(dsn: str, crowd: Crowd, seen: Counter[str]) -> None:
    """Check again and again, each time in one snapshot."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not crowd.is_over:
            for row in Jobs(conn).all(BROKEN):
                seen[str(row)] += 1
            seen["looks"] += 1


async def test_many_callers_never_deadlock_and_a_key_never_has_two_live_jobs(
    app: App, dsn: str, jobs: Jobs, keys: Keys
) -> None:
    running: set[str] = set()
    overlaps: list[str] = []

    @app.task()
    async def work(ctx: AsyncContext, key: str) -> None:
        if key in running:
            overlaps.append(key)
        running.add(key)
        await asyncio.sleep(0.002)
        running.discard(key)

    crowd = Crowd(app, work)
    seen: Counter[str] = Counter()
    async with running_worker(app, concurrency=20, poll_seconds=0.05):
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(look, dsn, crowd, seen))
            threads = [threading.Thread(target=crowd.push, args=[n]) for n in range(CALLERS)]
            for thread in threads:
                thread.start()
            for number in range(CALLERS):
                group.create_task(crowd.push_async(number))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await until(lambda: jobs.value("SELECT count(*) FROM $.job") == 0, what="all jobs ended")
    assert seen.pop("looks") > 10
    assert seen == Counter()
    assert overlaps == []
    assert len(crowd.created) > ENOUGH
    assert len(crowd.found) > 100
    assert sorted(crowd.created) == [
        row[0] for row in jobs.all("SELECT id FROM $.jobs WHERE state = 'done' ORDER BY id")
    ]
    key_of = dict(jobs.all("SELECT id, unique_key FROM $.jobs"))
    assert [pair for pair in crowd.found if key_of.get(pair[0]) != pair[1]] == []
    keys.check()
