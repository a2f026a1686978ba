"""B10: people who cancel, retry and hold meet ends, replacements and chores on the same jobs, each in an order of its own."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.support.engine import Actor, reap, run
from tests.support.jobs import Jobs
from tests.unique.keys import Keys

pytestmark = pytest.mark.pg15

SECONDS, KEYS, SEED = 3.0, 40, 20261201


def operate(dsn: str, until: float, seed: int) -> Counter[str]:
    """One person: a verb on a random job, again and again."""
    chance = random.Random(seed)
    answers: Counter[str] = Counter()
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < until:
            verb = chance.choice(["cancel(%s)", "retry(%s)", "hold(%s, 'look')", "release(%s)"])
            row = conn.execute("SELECT id FROM samecommit.job ORDER BY random() LIMIT 1").fetchone()
            row = row or conn.execute("SELECT max(id) FROM samecommit.job_history").fetchone()
            if row and row[0]:
                try:
                    answer = conn.execute(f"SELECT samecommit.{verb}".encode(), [row[0]]).fetchone()
                except psycopg.Error as error:
                    if error.sqlstate != "SC002":  # it moved to the history between two looks
                        raise
                else:
                    answers[str(answer)] += 1
    return answers


def produce(dsn: str, until: float, seed: int) -> None:
    """One application: batches of keys in random order, which replace what waits."""
    chance = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < until:
            keys = [f"k{chance.randrange(KEYS)}" for _ in range(10)]
            conn.execute(
                "SELECT count(*) FROM samecommit.enqueue_many((SELECT jsonb_agg(jsonb_build_object("
                "'kind', 'work', 'unique_key', k, 'on_conflict', 'replace')) FROM unnest(%s::text[]) AS k))",
                [keys],
            )


def work(dsn: str, until: float, seed: int) -> None:
    """One worker: claims, ends half of what it has in random order, lets the lease go with the rest."""
    chance = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < until:
            actor = Actor(conn).register()
            pairs = actor.claim(20)
            chance.shuffle(pairs)
            half = len(pairs) // 2
            actor.finish(pairs[:half])
            actor.settle(pairs[half : half + 3], "failed", "failed", errors=["broke"] * len(pairs[half : half + 3]))
            actor.die()


def tidy(dsn: str, until: float) -> None:
    """The chores, by somebody who has no turn."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < until:
            reap(conn)
            run(conn, "chore/reap_cancelled")
            run(conn, "chore/promote", start="-infinity", room=100)
            run(conn, "chore/age_failed", age_seconds=1.0, room=100)
            run(conn, "unique/sweep", room=100)


def test_b10d_nobody_deadlocks_and_every_key_keeps_one_live_job(dsn: str, jobs: Jobs, keys: Keys) -> None:
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(12) as pool:
        people: Any = [pool.submit(operate, dsn, until, SEED + n) for n in range(4)]
        others: Any = [pool.submit(f, dsn, until, SEED + n) for f in (produce, work) for n in range(3)]
        others += [pool.submit(tidy, dsn, until) for _ in range(2)]
        while time.monotonic() < until:
            keys.check()
        for other in others:
            other.result(30)
        answers = sum((person.result(30) for person in people), Counter[str]())
    keys.check()
    assert jobs.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    assert {"('cancelled',)", "('held',)", "('retried',)"} <= set(answers), answers
