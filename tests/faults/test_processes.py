"""What may happen to a worker process: killed, paused, told to stop, blocked, ended from within."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.faults.crew import Crew, Member, crew, wait_for
from tests.faults.judging import attempts_of, conclude, starts
from tests.faults.outcome import spread
from tests.faults.producer import enqueue
from tests.faults.storm import commit
from tests.support.history import History
from tests.support.history_checks import refused
from tests.support.history_health import restarts_elsewhere

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

MOMENTS = [
    pytest.param("after claim/claim=exit", 1, 1, id="after the claim"),
    pytest.param("before job/finish=exit", 2, 1, id="before the end is written"),
    pytest.param("after job/finish=exit", 1, 0, id="after the end is written"),
]


def noted(folder: Path, kind: str, name: str) -> None:
    History(folder / "faults.jsonl").write("fault", kind=kind, file=name)


@pytest.mark.parametrize(("faults", "expected_starts", "spent"), MOMENTS)
def test_a_worker_that_dies_between_two_statements_loses_nothing(
    faults: str, expected_starts: int, spent: int, dsn: str, folder: Path, workers: Crew
) -> None:
    enqueue(dsn, folder, "nap")
    doomed = workers.start(faults)
    assert doomed.process.wait(30) == 0
    workers.start()
    run = conclude(dsn, folder, workers)
    assert starts(run) == expected_starts
    assert attempts_of(run) == {"one-0": spent}


def test_a_job_of_a_killed_worker_starts_elsewhere_within_the_lease_and_a_round_of_the_reaper(
    dsn: str, folder: Path, workers: Crew
) -> None:
    waits: list[float] = []
    for n in range(2):
        doomed, other = workers.start(concurrency=8), workers.start(concurrency=8)
        for member in (doomed, other):
            member.wait_until("lease")
        enqueue(dsn, folder, "nap", 12, 1.0, name=f"round{n}")
        doomed.wait_until("start")
        noted(folder, "kill", doomed.name)
        doomed.kill()
        waits = restarts_elsewhere(conclude(dsn, folder, workers))
    print("a killed worker's job started elsewhere after", waits)
    assert len(waits) == 2
    assert max(waits) <= 3 + 1 + 1


def test_the_jobs_of_a_killed_worker_do_not_wait_behind_the_backlog(dsn: str, folder: Path, workers: Crew) -> None:
    doomed, other = workers.start(concurrency=8), workers.start(concurrency=8)
    for member in (doomed, other):
        member.wait_until("lease")
    enqueue(dsn, folder, "nap", 320, 0.3)  # what is left when it dies takes the other one more than ten seconds
    doomed.wait_until("start", count=8)
    noted(folder, "kill", doomed.name)
    doomed.kill()
    run = conclude(dsn, folder, workers)
    (killed,) = run.faults_of("kill")
    began = [(line["job"], line["at"], line["file"]) for line in run.handlers if line["op"] == "start"]
    again = [
        at - killed["at"]
        for job, at, file in began
        if file == other.name and (job, doomed.name) in {(job, file) for job, _, file in began}
    ]
    print(
        f"{len(again)} jobs of a killed worker started elsewhere, before the backlog, after {max(again):.1f} s at most"
    )
    assert 1 <= len(again) <= 8
    assert max(again) <= 3 + 1 + 1


def test_an_effect_in_the_jobs_own_transaction_happens_once_though_its_worker_is_killed_within(
    dsn: str, folder: Path, workers: Crew
) -> None:
    doomed = workers.start()
    doomed.wait_until("lease")
    enqueue(dsn, folder, "effect", 6, 0.7)
    doomed.wait_until("start", count=3)
    doomed.kill()
    workers.start()
    run = conclude(dsn, folder, workers)
    assert starts(run) > 6
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT key, count(*) FROM effect GROUP BY key ORDER BY key").fetchall() == [
            (f"one-{n}", 1) for n in range(6)
        ]


def test_a_paused_worker_may_write_nothing_once_its_lease_is_over(dsn: str, folder: Path, workers: Crew) -> None:
    zombie, other = workers.start("before worker/beat=sleep:0.5"), None
    zombie.wait_until("lease")
    enqueue(dsn, folder, "nap", 10, 1.0)
    zombie.wait_until("start", count=10)
    zombie.pause()
    other = workers.start()
    other.wait_until("start", count=10)
    zombie.resume()
    zombie.wait_until("lost")
    zombie.wait_until("lease", count=2)
    run = conclude(dsn, folder, workers)
    assert refused(run) > 0
    assert starts(run) == 20
    assert set(attempts_of(run).values()) == {1}


@pytest.mark.slow
def test_a_pause_that_is_shorter_than_the_lease_changes_nothing(
    dsn: str, folder: Path, workers: Crew, seed: int
) -> None:
    rng = random.Random(seed)
    paused, _ = workers.start(), workers.start()
    for member in workers.members:
        member.wait_until("lease")
    enqueue(dsn, folder, "nap", 60, 0.5)
    for _ in range(4):
        time.sleep(rng.random() * 0.3)
        paused.pause()
        time.sleep(1.0 + rng.random() * 0.5)
        paused.resume()
        time.sleep(1.2)  # beats again
    run = conclude(dsn, folder, workers)
    assert starts(run) == 60
    assert set(attempts_of(run).values()) == {0}


@dataclasses.dataclass
class Deploys:
    """Workers that were told to stop at random moments, and what became of it."""

    took: list[float] = dataclasses.field(default_factory=list[float])
    told_twice: int = 0

    def stop(self, members: list[Member], rng: random.Random) -> None:
        """Send each SIGTERM at a moment of its own, half of them a second one, and wait until all have ended."""
        now = time.monotonic()
        planned: list[tuple[float, int]] = []
        for n in range(len(members)):
            planned.append((now + rng.random() * 0.6, n))
            if rng.random() < 0.5:
                planned.append((planned[-1][0] + rng.random() * 0.3, n))
                self.told_twice += 1
        planned.sort(reverse=True)
        began, left, until = dict[int, float](), set(range(len(members))), now + RETURNS_WITHIN
        while left:
            while planned and planned[-1][0] <= time.monotonic():
                n = planned.pop()[1]
                began.setdefault(n, time.monotonic())
                members[n].send(signal.SIGTERM)
            for n in [n for n in left if not members[n].is_alive]:
                left.remove(n)
                self.took.append(time.monotonic() - began[n])
            assert time.monotonic() < until, f"did not return within {RETURNS_WITHIN:g} s: {[members[n] for n in left]}"
            time.sleep(0.005)


RETURNS_WITHIN = 60.0
"""Of `stop`, seconds: what has not returned by then never does."""


def stop_at_random(dsn: str, folder: Path, workers: Crew, seed: int, count: int, slowest: float) -> dict[str, Any]:
    """Tell workers to stop while they work, four at once; what it came to.

    Their leases outlast a busy machine: whatever spends an attempt here is a stop.
    """
    rng, deploys = random.Random(seed), Deploys()
    workers.config.update(lease_seconds=20.0, grace_seconds=0.3, concurrency=10)
    while (left := count - len(deploys.took)) > 0:
        members = [workers.start() for _ in range(min(left, 4))]
        for member in members:
            member.wait_until("lease", seconds=120)
        enqueue(dsn, folder, "nap", len(members) * 16, 0.4, name=f"batch{len(deploys.took)}")
        deploys.stop(members, rng)
        for member in members:
            assert member.lines("totals"), f"{member} did not return: {workers.errors()}"
            # a second SIGTERM may come when all is written and the interpreter is ending
            assert member.process.returncode in (0, -signal.SIGTERM), workers.errors()
    workers.start(concurrency=100)
    run = conclude(dsn, folder, workers, drain_seconds=240)
    result = {
        "commit": commit(),
        "seed": seed,
        "cores": os.cpu_count(),
        "deploys": len(deploys.took),
        "told twice": deploys.told_twice,
        "jobs": len(run.tables),
        "given back": sum(line["given_back"] for line in run.handlers if line["op"] == "stopped"),
        "attempts spent": sum(attempts_of(run).values()),
        "never returned": count - len(deploys.took),
        "seconds": spread(deploys.took),
    }
    print(json.dumps(result))
    assert not result["attempts spent"], f"{result['attempts spent']} attempts were spent by {count} stops"
    assert result["given back"] > 0
    assert max(deploys.took) <= slowest
    return result


def test_deploys_spend_no_attempt(dsn: str, folder: Path, workers: Crew, seed: int) -> None:
    stop_at_random(dsn, folder, workers, seed, 10, slowest=0.3 + 10.0)


def test_a_build_that_spends_attempts_on_a_deploy_is_caught(dsn: str, folder: Path, seed: int) -> None:
    with (
        crew(dsn, folder, broken="spends_on_shutdown") as workers,
        pytest.raises(AssertionError, match="attempts were spent"),
    ):
        stop_at_random(dsn, folder, workers, seed, 3, slowest=RETURNS_WITHIN)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_deploys_spend_no_attempt(
    dsn: str, folder: Path, workers: Crew, seed: int, request: pytest.FixtureRequest
) -> None:
    result = stop_at_random(dsn, folder, workers, seed, request.config.getoption("--deploys"), slowest=RETURNS_WITHIN)
    if path := request.config.getoption("--result"):
        Path(path).write_text(json.dumps(result, indent=1) + "\n")


def test_a_handler_that_blocks_the_loop_longer_than_the_lease_keeps_it(dsn: str, folder: Path, workers: Crew) -> None:
    workers.start()
    workers.start()
    enqueue(dsn, folder, "block", 1, 5.0)
    run = conclude(dsn, folder, workers)
    assert starts(run) == 1
    assert attempts_of(run) == {"one-0": 0}


def test_a_thread_that_computes_longer_than_the_lease_keeps_it(dsn: str, folder: Path, workers: Crew) -> None:
    workers.start()
    workers.start()
    enqueue(dsn, folder, "burn", 2, 4.5)
    run = conclude(dsn, folder, workers)
    assert starts(run) == 2
    assert attempts_of(run) == {"one-0": 0, "one-1": 0}


@pytest.mark.slow
def test_a_loop_that_stands_still_too_long_counts_as_dead(dsn: str, folder: Path, workers: Crew) -> None:
    hung = workers.start(stall_seconds=1.0)
    hung.wait_until("lease")
    enqueue(dsn, folder, "block", 1, 6.0)
    hung.wait_until("start")
    workers.start(stall_seconds=20.0)
    run = conclude(dsn, folder, workers)
    assert starts(run) == 2
    assert attempts_of(run) == {"one-0": 1}
    assert len(hung.lines("lease")) == 2


@pytest.mark.parametrize("kind", ["leave", pytest.param("interrupt", marks=pytest.mark.slow)])
def test_what_ends_an_interpreter_ends_an_attempt_only(kind: str, dsn: str, folder: Path, workers: Crew) -> None:
    member = workers.start()
    member.wait_until("lease")
    (job,) = enqueue(dsn, folder, kind)
    member.wait_until("start", count=3)
    enqueue(dsn, folder, "nap", name="another")
    wait_for(lambda: any(line["key"] == "another-0" for line in member.lines("end")), 10)
    assert member.is_alive
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT samecommit.cancel(%s)", [job]).fetchone() is not None
    run = conclude(dsn, folder, workers)
    assert attempts_of(run)["one-0"] >= 2


@pytest.mark.parametrize("kind", ["crash", pytest.param("vanish", marks=pytest.mark.slow)])
def test_a_job_that_kills_its_worker_is_held_and_its_neighbours_are_done(
    kind: str, dsn: str, folder: Path, workers: Crew
) -> None:
    workers.config.update(lease_seconds=1.0, heartbeat_seconds=0.3, reap_seconds=0.3, concurrency=20)
    enqueue(dsn, folder, "nap", 40, 0.3, name="neighbour")
    (killer,) = enqueue(dsn, folder, kind, name="killer", seconds=0.05)
    deaths = 0

    def is_held() -> bool:
        nonlocal deaths
        while len(workers.alive) < 2:
            deaths += 1
            workers.start()
        with psycopg.connect(dsn) as conn:
            state = conn.execute("SELECT state FROM samecommit.job WHERE id = %s", [killer]).fetchone()
        return state == ("held",)

    wait_for(is_held, 90, "the killer to be held")
    run = conclude(dsn, folder, workers)
    rows = {line["key"]: line for line in run.tables}
    assert rows.pop("killer-0")["crashes"] == 3
    assert {line["state"] for line in rows.values()} == {"done"}
    assert deaths - 2 <= 6


def test_suspects_leave_most_of_the_time_to_other_work(dsn: str, folder: Path, workers: Crew) -> None:
    enqueue(dsn, folder, "nap", 40, 0.5, name="suspect")
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE samecommit.job SET pos = NULL, blocked_by = 'suspect', lost = 3")
    enqueue(dsn, folder, "nap", 400, 0.1, name="ordinary")
    member = workers.start(concurrency=20)

    def ended(name: str) -> int:
        return sum(line["key"].startswith(name) for line in member.lines("end"))

    wait_for(lambda: ended("ordinary") == 400, 60)
    assert ended("suspect") < 20
    conclude(dsn, folder, workers)
