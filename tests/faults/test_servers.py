"""What may happen to the server: it crashes, is away for long, is full, locked, read-only, pinned, restored, behind a pooler."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.faults.arena import ROLE, Arena
from tests.faults.crew import Crew, wait_for
from tests.faults.judging import conclude, drain
from tests.faults.producer import Producer, enqueue
from tests.support.history import History
from tests.support.history_health import first_claims_after

from samecommit.embedded.supervisor import SUPERVISOR_LOCK

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


@contextlib.contextmanager
def down(ground: Arena, folder: Path, seconds: float) -> Iterator[None]:
    """Have no server for a while: its supervisor is stopped, the server killed."""
    supervisor = int((ground.server.data_dir / SUPERVISOR_LOCK).read_text().split()[0])
    began = time.time()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(ground.server.server_pid, signal.SIGQUIT)
        yield
        time.sleep(max(0.0, seconds - (time.time() - began)))
    finally:
        os.kill(supervisor, signal.SIGCONT)
    note(folder, "down", began, ground.wait_until_up())


def note(folder: Path, kind: str, began: float, ended: float) -> None:
    History(folder / "faults.jsonl").write("fault", kind=kind, is_down=True, at=began, until=ended)


def test_work_goes_on_soon_after_each_crash(ground: Arena, dsn: str, folder: Path, workers: Crew, seed: int) -> None:
    for _ in range(2):
        workers.start().wait_until("lease")
    load = Producer(dsn, folder, "p", count=600, seconds=10, longest=0.2, seed=seed, kinds=("nap", "effect"))
    load.start()
    for _ in range(3):
        time.sleep(2)
        began = time.time()
        ground.server.restart("immediate")
        note(folder, "crash", began, ground.wait_until_up())
    load.join(60)
    run = conclude(dsn, folder, workers)
    waits = first_claims_after(run, "crash")
    print("first claim after the server was back:", [round(wait, 2) for wait in waits])
    assert statistics.median(waits) <= 2
    assert max(waits) <= 5
    assert all(member.is_alive or member.process.returncode == 0 for member in workers.members)


@pytest.mark.slow
def test_workers_outlive_a_server_that_is_away(ground: Arena, dsn: str, folder: Path, workers: Crew) -> None:
    for _ in range(2):
        workers.start().wait_until("lease")
    enqueue(dsn, folder, "nap", 60, 1.0)
    with down(ground, folder, 20):
        pass
    enqueue(dsn, folder, "nap", 20, 0.1, name="after")
    run = conclude(dsn, folder, workers)
    waits = first_claims_after(run, "down")
    print("first claim after 20 s without a server:", waits)
    assert waits[0] <= 5
    assert [member.process.returncode for member in workers.members] == [0, 0]
    troubles = [line for line in run.handlers if line["op"] == "trouble"]
    assert len(troubles) / 2 / 7 <= 20  # told, not flooded: two workers, seven loops, 20 s


def test_a_worker_that_starts_before_its_server_says_why_and_waits_for_it(
    ground: Arena, dsn: str, folder: Path, workers: Crew
) -> None:
    enqueue(dsn, folder, "nap", 3)
    with down(ground, folder, 2):
        early = workers.start()
        assert "cannot connect" in early.wait_until("trouble", count=2)[0]["error"]
        assert early.is_alive
    early.wait_until("end", count=3)
    conclude(dsn, folder, workers)
    assert early.process.returncode == 0


def test_a_server_without_a_free_connection_delays_and_loses_nothing(
    ground: Arena, dsn: str, folder: Path, workers: Crew
) -> None:
    member = workers.start()
    member.wait_until("lease")
    enqueue(dsn, folder, "nap", 10, 1.0)
    member.wait_until("start", count=10)
    idle: list[psycopg.Connection[tuple[object, ...]]] = []
    with contextlib.suppress(psycopg.OperationalError):
        while len(idle) < 200:
            idle.append(psycopg.connect(dsn))
    assert len(idle) < 200
    for link in ("claim", "finish"):
        ground.admin(
            "SELECT pg_terminate_backend(pid), (SELECT pg_sleep(0)) FROM pg_stat_activity "
            f"WHERE application_name = 'samecommit {link}'"
        )
        with contextlib.suppress(psycopg.OperationalError):
            idle.append(psycopg.connect(dsn))
    wait_for(lambda: [x for x in member.lines("trouble") if "cannot connect" in x["error"]], 20)
    for conn in idle:
        conn.close()
    enqueue(dsn, folder, "nap", 10, name="after")
    conclude(dsn, folder, workers)


@pytest.mark.parametrize(
    "table",
    ["job", *(pytest.param(name, marks=pytest.mark.slow) for name in ("job_history", "worker", "claim", "chore"))],
)
def test_a_table_that_is_locked_delays_and_loses_nothing(table: str, dsn: str, folder: Path, workers: Crew) -> None:
    workers.start().wait_until("lease")
    enqueue(dsn, folder, "nap", 20, 0.5)
    with psycopg.connect(dsn) as conn:
        conn.execute(f"LOCK TABLE samecommit.{table} IN ACCESS EXCLUSIVE MODE".encode())
        time.sleep(5)
    enqueue(dsn, folder, "nap", 20, 0.1, name="after")
    conclude(dsn, folder, workers)


def test_the_databases_own_settings_do_not_reach_a_worker(ground: Arena, dsn: str, folder: Path, workers: Crew) -> None:
    name = dsn.partition("?")[0].rpartition("/")[2]
    for setting in (
        "statement_timeout = '1ms'", "lock_timeout = '1ms'", "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on", "enable_indexscan = off", "timezone = 'Asia/Kathmandu'",
    ):  # fmt: skip
        ground.admin(f"ALTER DATABASE {name} SET {setting}")
    try:
        member = workers.start()
        member.wait_until("lease")
    finally:
        ground.admin(f"ALTER DATABASE {name} RESET ALL")
    enqueue(dsn, folder, "nap", 50, 0.1)
    conclude(dsn, folder, workers)
    troubles = " ".join(line["error"] for line in member.lines("trouble"))
    assert "read-only" not in troubles and "serialize" not in troubles


def test_a_pinned_horizon_does_not_stop_the_work(dsn: str, folder: Path, workers: Crew, seed: int) -> None:
    workers.start().wait_until("lease")
    with psycopg.connect(dsn) as pin:
        pin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        pin.execute("SELECT count(*) FROM samecommit.job")
        load = Producer(dsn, folder, "p", count=3000, seconds=6, longest=0.02, seed=seed, groups=(20, 50))
        load.start()
        load.join(60)
        drain(dsn, 20)
    conclude(dsn, folder, workers)


def test_a_finish_makes_the_days_that_are_missing(dsn: str, folder: Path, workers: Crew) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        days = conn.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhrelid::regclass::text ~ '_[0-9]{8}$'"
        ).fetchall()
        assert len(days) > 60
        for (day,) in days:
            conn.execute(f"DROP TABLE {day}".encode())
    workers.start()
    enqueue(dsn, folder, "nap", 20)
    enqueue(dsn, folder, "stumble", 5, name="stumbling")
    conclude(dsn, folder, workers)


def test_a_listener_that_dies_leaves_polling(ground: Arena, dsn: str, folder: Path, workers: Crew) -> None:
    member = workers.start(doorbell=False)
    member.wait_until("lease")
    time.sleep(1)
    began = time.time()
    enqueue(dsn, folder, "nap")
    started = member.wait_until("start")[0]["at"]
    assert started - began <= 1.0
    conclude(dsn, folder, workers)


def test_b21e_a_role_that_may_not_log_in_for_a_while_delays_and_loses_nothing(
    ground: Arena, dsn: str, folder: Path, workers: Crew
) -> None:
    member = workers.start()
    member.wait_until("lease")
    enqueue(dsn, folder, "nap", 10, 0.5)
    member.wait_until("start", count=10)
    ground.admin(f"ALTER ROLE {ROLE} NOLOGIN")
    try:
        ground.admin(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'samecommit %'"
        )
        wait_for(lambda: [x for x in member.lines("trouble") if "not permitted to log in" in x["error"]], 20)
    finally:
        ground.admin(f"ALTER ROLE {ROLE} LOGIN")
    enqueue(dsn, folder, "nap", 10, name="after")
    conclude(dsn, folder, workers)
    assert member.process.returncode == 0
