"""Transactions of others: serializable by default, and locking the same jobs in whatever order they like."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import psycopg
import pytest
from tests.faults.arena import Arena
from tests.faults.crew import Crew
from tests.faults.judging import attempts_of, conclude
from tests.faults.locks import enqueue_locked, lock_running, those_that_worked
from tests.faults.producer import Producer

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "isolation",
    ["serializable", pytest.param("repeatable read", marks=pytest.mark.slow)],
    ids=["serializable", "snapshot"],
)
def test_applications_that_are_serializable_by_default_lose_and_double_nothing(
    isolation: str, ground: Arena, dsn: str, folder: Path, workers: Crew, seed: int
) -> None:
    name = dsn.partition("?")[0].rpartition("/")[2]
    ground.admin(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    for _ in range(2):
        workers.start().wait_until("lease")
    loads = [
        Producer(dsn, folder, f"p{n}", count=120, seconds=4, longest=0.1, seed=seed, kinds=("effect", "nap", "stumble"))
        for n in range(3)
    ]
    for load in loads:
        load.start()
    for load in loads:
        load.join(60)
    run = conclude(dsn, folder, workers)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT count(*) FROM effect GROUP BY key HAVING count(*) > 1").fetchall() == []
    troubles = [line["error"] for line in run.handlers if line["op"] == "trouble"]
    assert not [error for error in troubles if "serialize" in error], "workers' own sessions are read committed"
    stumbled = sum(line["op"] == "error" for line in run.handlers)
    repeated = sum(attempts_of(run).values()) - stumbled
    print(f"{isolation}: {repeated} handlers' transactions of {len(run.tables)} jobs were refused and ran again")


class Rival(threading.Thread):
    """Locks running and waiting jobs in random order, holds them for a while, and is a deadlock's partner if it can be."""

    def __init__(self, dsn: str, seed: int, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._dsn, self._rng, self._over = dsn, random.Random(seed), ended
        self.locked = self.deadlocks = 0

    def run(self) -> None:
        with psycopg.connect(self._dsn, application_name="rival") as conn:
            while not self._over.wait(0.01):
                ids = [row[0] for row in conn.execute("SELECT id FROM samecommit.job ORDER BY random() LIMIT 6")]
                self._rng.shuffle(ids)
                try:
                    for job in ids:
                        conn.execute("SELECT FROM samecommit.job WHERE id = %s FOR UPDATE", [job])
                        self.locked += 1
                    time.sleep(0.05)
                    conn.rollback()
                except psycopg.errors.DeadlockDetected:
                    self.deadlocks += 1
                    conn.rollback()


def test_rivals_that_lock_jobs_in_any_order_deadlock_one_another_only(
    dsn: str, folder: Path, workers: Crew, seed: int
) -> None:
    for _ in range(2):
        workers.start().wait_until("lease")
    ended = threading.Event()
    rivals = [Rival(dsn, seed + n, ended) for n in range(4)]
    load = Producer(dsn, folder, "p", count=300, seconds=5, longest=0.3, seed=seed, kinds=("nap", "effect", "stumble"))
    load.start()
    for rival in rivals:
        rival.start()
    load.join(60)
    ended.set()
    for rival in rivals:
        rival.join(20)
    run = conclude(dsn, folder, workers)
    deadlocks, locked = sum(rival.deadlocks for rival in rivals), sum(rival.locked for rival in rivals)
    print(f"{locked} jobs locked by rivals, {deadlocks} deadlocks among them")
    assert locked > 50
    troubles = [line["error"] for line in run.handlers if line["op"] == "trouble"]
    assert not [error for error in troubles if "deadlock" in error]
    assert max(attempts_of(run).values()) <= 1  # of those that stumble


def test_claims_pass_over_locked_jobs_in_line_and_ends_of_locked_ones_land(
    dsn: str, folder: Path, workers: Crew, seed: int
) -> None:
    member = workers.start()
    member.wait_until("lease")
    load = Producer(dsn, folder, "p", count=600, seconds=6, longest=0.2, seed=seed, kinds=("nap", "doze"))
    load.start()
    member.wait_until("end", count=50)
    with psycopg.connect(dsn, application_name="stranger") as conn:
        in_line = enqueue_locked(conn, folder, "locked", 10)
        running = lock_running(conn, 20)
        began = len(member.lines("start"))
        member.wait_until("start", count=began + 100)
        time.sleep(1.0)
        waiting = those_that_worked(conn, running)
    unlocked = time.time()
    run = conclude(dsn, folder, workers)
    ends = {(line["job_id"], line["new_claim"]): line["at"] for line in run.ends}
    landed = [ends[pair] - unlocked for pair in zip(*waiting, strict=True)]
    claimed = [line["at"] - unlocked for line in run.claims if line["job_id"] in in_line]
    print(
        f"{len(landed)} ends landed after {max(landed):.2f} s, {len(claimed)} jobs claimed after {max(claimed):.2f} s"
    )
    assert len(landed) >= 5
    assert 0 < min(landed) <= max(landed) <= 2
    assert len(claimed) == 10
    assert 0 < min(claimed) <= max(claimed) <= 4
