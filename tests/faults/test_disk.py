"""The disk is full, under the tables or under the log: nothing is lost, and work goes on when there is room again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.faults.cluster import DATABASE, Cluster, Machines, machines
from tests.faults.crew import Crew, crew, wait_for
from tests.faults.judging import conclude
from tests.faults.producer import Producer, enqueue
from tests.support.database import missing
from tests.support.history import History, Line
from tests.support.history_health import first_claims_after

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room."""
        with self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Give all of it back."""
        self._ballast.unlink()


@contextmanager
def small_disk(megabytes: int) -> Iterator[SmallDisk]:
    """Mount one in memory; only root can."""
    folder = Path(tempfile.mkdtemp(prefix="samecommit-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(folder)]
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        folder.rmdir()
        missing("a file system of its own can be mounted by root only")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture
def place() -> Iterator[Machines]:
    """Where servers are made."""
    with machines() as made:
        yield made


def under_load(dsn: str, folder: Path, workers: Crew, seed: int) -> Producer:
    """Have work in flight: jobs that come, run and end."""
    for _ in range(2):
        workers.start().wait_until("lease")
    load = Producer(
        dsn,
        folder,
        "p",
        count=400,
        seconds=8,
        longest=0.5,
        seed=seed,
        kinds=("nap", "effect", "stumble"),
        rollbacks=0.0,
    )
    load.start()
    wait_for(lambda: load.made > 60, 30, "work in flight")
    return load


def note(folder: Path, kind: str, began: float, until: float) -> None:
    History(folder / "faults.jsonl").write("fault", kind=kind, is_down=True, at=began, until=until)


def on_small_disk(cluster: Cluster, disk: SmallDisk) -> str:
    """Install in a database whose files are on the small disk."""
    home = disk.folder / "tables"
    home.mkdir()
    cluster.own(home)
    cluster.admin(f"CREATE TABLESPACE small LOCATION '{home}'")
    dsn = cluster.install()
    cluster.admin(f"ALTER DATABASE {DATABASE} SET TABLESPACE small")
    return dsn


def test_tables_that_cannot_grow_delay_and_lose_nothing(place: Machines, folder: Path, seed: int) -> None:
    cluster = place.cluster("one", autovacuum="off")
    with small_disk(64) as disk, crew(on_small_disk(cluster, disk), folder) as workers:
        load = under_load(workers.dsn, folder, workers, seed)
        disk.fill()
        began = time.time()

        def troubles() -> list[Line]:
            return [x for m in workers.members for x in m.lines("trouble") if "No space left" in x["error"]]

        wait_for(troubles, 30, "an end that finds no room")
        refused = wait_for(lambda: refusal(workers.dsn), 30, "an enqueue that finds no room")
        assert isinstance(refused, psycopg.errors.DiskFull)
        time.sleep(1)
        disk.free()
        note(folder, "full", began, time.time())
        load.join(60)
        run = conclude(workers.dsn, folder, workers)
        waits = first_claims_after(run, "full")
        print(f"first claim after there was room: {waits}; {len(troubles())} writes found none")
        assert max(waits) <= 5
        assert [member.process.returncode for member in workers.members] == [0, 0]
        cluster.kill()


def refusal(dsn: str) -> BaseException | None:
    """What an enqueue of half a megabyte is answered; nothing stays of it."""
    payload = "SELECT samecommit.enqueue('never', jsonb_build_object('x', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 16000) AS n)))"
    with psycopg.connect(dsn) as conn:
        try:
            conn.execute(payload.encode())
        except psycopg.OperationalError as error:
            return error
        conn.rollback()
    return None


def test_a_log_that_cannot_grow_ends_the_server_and_nothing_is_lost(place: Machines, folder: Path, seed: int) -> None:
    with small_disk(96) as disk:
        cluster = place.empty("one")
        cluster.create({"max_wal_size": "32MB", "min_wal_size": "32MB", "wal_recycle": "off"})
        log = disk.folder / "wal"
        shutil.move(cluster.data / "pg_wal", log)
        cluster.own(log)
        (cluster.data / "pg_wal").symlink_to(log)
        cluster.start()
        with crew(cluster.install(), folder) as workers:
            load = under_load(workers.dsn, folder, workers, seed)
            disk.fill()
            began = time.time()
            while not cluster.has_ended(0.1):
                try:
                    cluster.admin("SELECT pg_switch_wal()")
                except psycopg.OperationalError:
                    continue
            assert "No space left on device" in (cluster.home / "log").read_text()
            disk.free()
            cluster.start()
            note(folder, "full", began, time.time())
            load.join(60)
            enqueue(workers.dsn, folder, "nap", 5, name="after")
            run = conclude(workers.dsn, folder, workers)
            waits = first_claims_after(run, "full")
            print(f"first claim after the server was back: {waits}")
            assert max(waits) <= 5
            assert [member.process.returncode for member in workers.members] == [0, 0]
        cluster.kill()
