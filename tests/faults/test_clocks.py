"""Clocks that are wrong and that jump, and sessions that write times and texts in another way: nothing changes."""

from __future__ import annotations

import mmap
import random
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.faults.arena import Arena
from tests.faults.crew import Crew
from tests.faults.judging import attempts_of, conclude, starts
from tests.faults.producer import Producer, enqueue
from tests.support.database import missing

from samecommit.storage.operate import JobFilter, Operator

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
HOUR, YEAR = 3600.0, 365.25 * 86_400
ODD = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "extra_float_digits": "-15",
    "xmloption": "document",
    "lc_messages": "C",
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What makes a process's wall clock wrong."""
    if shutil.which("gcc") is None:
        missing("no C compiler")
    made = tmp_path_factory.mktemp("clock") / "wrong_clock.so"
    source = Path(__file__).with_name("wrong_clock.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(made), str(source), "-ldl"], check=True
    )
    return made


class WrongClock:
    """By how many seconds the wall clock of some processes is wrong; may be changed at any time."""

    def __init__(self, library: Path, folder: Path, seconds: float = 0.0) -> None:
        place = folder / f"clock{len(list(folder.glob('clock*')))}"
        place.write_bytes(bytes(8))
        with place.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.environment = {"LD_PRELOAD": str(library), "WRONG_CLOCK": str(place)}
        self.set(seconds)

    def set(self, seconds: float) -> None:
        self._map[:] = struct.pack("=q", int(seconds * 1e9))


@contextmanager
def jumping(clock: WrongClock, rng: random.Random) -> Iterator[Callable[[], int]]:
    """Let a clock jump while the block lasts: gives how often it has."""
    jumps, ended = 0, threading.Event()

    def jump() -> None:
        nonlocal jumps
        while not ended.wait(0.2):
            clock.set(rng.choice((-YEAR, -HOUR, -60, -2, 2, 60, HOUR, YEAR)) * rng.random())
            jumps += 1

    thread = threading.Thread(target=jump)
    thread.start()
    try:
        yield lambda: jumps
    finally:
        ended.set()
        thread.join()


def test_the_library_changes_the_wall_clock_and_no_other(library: Path, tmp_path: Path) -> None:
    clock = WrongClock(library, tmp_path, -YEAR)
    program = (
        "import time, datetime; time.sleep(0.01); "
        "print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], env=clock.environment, capture_output=True, text=True, check=True
    )
    wall, date, monotonic = map(float, told.stdout.split())
    assert abs(wall - (time.time() - YEAR)) < 60 and abs(date - wall) < 60
    assert 0 <= time.monotonic() - monotonic < 60


@pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD")
def test_workers_whose_clocks_are_wrong_and_jump_do_as_all_others(
    library: Path, dsn: str, folder: Path, workers: Crew, seed: int
) -> None:
    rng = random.Random(seed)
    ahead, behind = WrongClock(library, folder, 5 * HOUR), WrongClock(library, folder, -10 * YEAR)
    jumpy = WrongClock(library, folder)
    for clock in (ahead, behind, jumpy):
        workers.start(environment=clock.environment).wait_until("lease")
    load = Producer(
        dsn, folder, "p", count=250, seconds=6, longest=0.3, seed=seed, kinds=("nap", "doze", "effect", "stumble")
    )
    load.start()
    with jumping(jumpy, rng) as jumps:
        load.join(60)
    run = conclude(dsn, folder, workers)
    per_worker = [sum(x["op"] == "start" for x in member.lines()) for member in workers.members]
    print(f"{jumps()} jumps; starts by worker: {per_worker}")
    assert jumps() >= 20 and min(per_worker) > 0
    assert not [line for line in run.handlers if line["op"] in ("lost", "refused", "trouble")]
    assert max(attempts_of(run).values()) <= 1  # of those that stumble


def test_sessions_with_odd_habits_are_no_obstacle(ground: Arena, dsn: str, folder: Path, workers: Crew) -> None:
    name = dsn.partition("?")[0].rpartition("/")[2]
    for setting, value in ODD.items():
        ground.admin(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    with psycopg.connect(dsn, autocommit=True) as conn:
        days = conn.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhrelid::regclass::text ~ '_[0-9]{8}$'"
        ).fetchall()
        for (day,) in days:
            conn.execute(f"DROP TABLE {day}".encode())
    worker = workers.start(
        environment={"PGTZ": "Pacific/Kiritimati", "PGDATESTYLE": "SQL, DMY", "TZ": "America/St_Johns"}
    )
    worker.wait_until("lease")
    for kind in ("nap", "effect", "stumble", "doze"):
        enqueue(dsn, folder, kind, 10, 0.01, name=kind)
    run = conclude(dsn, folder, workers)
    assert 50 <= starts(run) <= 60  # a handler's own transaction that finds no day runs again
    assert not worker.lines("trouble"), worker.lines("trouble")
    with psycopg.connect(dsn, autocommit=True) as conn:
        bounds = conn.execute(
            "SET datestyle = 'ISO'; SET timezone = 'UTC'; "
            "SELECT DISTINCT pg_get_expr(c.relpartbound, c.oid) ~ $$TO \\('....-..-.. 00:00:00\\+00'\\)$$ "
            "FROM pg_class AS c WHERE c.relname ~ '^job_history_._[0-9]{8}$'"
        )
        while bounds.nextset():
            pass
        assert bounds.fetchall() == [(True,)]


def test_an_operator_reads_times_whatever_the_database_says(ground: Arena, dsn: str, folder: Path) -> None:
    name = dsn.partition("?")[0].rpartition("/")[2]
    (job, *_) = enqueue(dsn, folder, "nap", 3)
    for setting, value in ODD.items():
        ground.admin(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    with Operator.connect(dsn, "samecommit") as asked:
        assert len(asked.jobs(JobFilter()).jobs) == 3
        assert asked.job(job)["run_at"].tzinfo is not None
        assert asked.why(job)[0]["code"] == "no_worker"
        asked.pause("default", "it's a \\ test")
        assert asked.queues()[0]["pause_reason"] == "it's a \\ test"
        assert asked.workers() == []
