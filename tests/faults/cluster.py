"""Servers without a keeper, for what an embedded one is kept from: killed for good, copied, promoted, starved of disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from tests.faults.arena import ROLE, SCHEMA
from tests.support import history_audit
from tests.support.database import binaries

from samecommit.embedded.account import Runner, choose_runner
from samecommit.embedded.find import find_binaries
from samecommit.storage.migrate import migrate

DATABASE = "ground"
SETTINGS = {"max_connections": "80", "fsync": "off", "shared_buffers": "32MB", "unix_socket_permissions": "0777"}


class Cluster:
    """One server: its files in a folder, its socket in another, run by the account that may run it."""

    def __init__(self, home: Path, runner: Runner) -> None:
        self.home, self.data, self.sockets, self._runner = home, home / "data", home / "run", runner
        self.address = f"host={self.sockets} port=5432"
        self._process: subprocess.Popen[bytes] | None = None
        for folder in (self.home, self.sockets):
            folder.mkdir(exist_ok=True)
            self.own(folder)

    def __repr__(self) -> str:
        return f"<Cluster {self.home.name} {'up' if self._process and self._process.poll() is None else 'down'}>"

    def own(self, folder: Path) -> None:
        """Give a folder, with what is in it, to the account of the server."""
        if self._runner.uid is not None and self._runner.gid is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self._runner.uid, self._runner.gid)

    def _as_server(self) -> dict[str, Any]:
        if self._runner.uid is None:
            return {}
        return {"user": self._runner.uid, "group": self._runner.gid, "extra_groups": []}

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs as its account."""
        command = [str(self._runner.bin_dir / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **self._as_server())

    def create(self, settings: Mapping[str, str]) -> None:
        """Make its files."""
        self.run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.configure({"unix_socket_directories": str(self.sockets), "listen_addresses": "", **SETTINGS, **settings})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Add to its settings; they count from the next start."""
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self, *, is_standby: bool = False) -> None:
        """Start it and wait until it answers."""
        with (self.home / "log").open("ab") as log:
            command = [str(self._runner.bin_dir / "postgres"), "-D", str(self.data)]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", start_new_session=True, **self._as_server()
            )
        self.wait_until_up(writable=not is_standby)

    def wait_until_up(self, *, writable: bool = True, seconds: float = 30.0) -> float:
        """Wait until it takes connections, and writes; the moment it does."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                if self.admin("SELECT pg_is_in_recovery()") == [(False,)] or not writable:
                    return time.time()
            assert self._process is None or self._process.poll() is None, (self.home / "log").read_text()[-2000:]
            assert time.monotonic() < until, (self.home / "log").read_text()[-2000:]
            time.sleep(0.02)

    def admin(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as superuser, on a connection of its own."""
        with psycopg.connect(f"{self.address} user=postgres dbname={database}", autocommit=True) as conn:
            cursor = conn.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> float:
        """End it as a machine ends that loses its power supply, but for what the operating system has cached."""
        if self._process is None:
            return time.time()
        with contextlib.suppress(psycopg.OperationalError, ProcessLookupError):
            for (pid,) in self.admin("SELECT pid FROM pg_stat_activity"):
                os.kill(pid, signal.SIGSTOP)  # none of them shall get a word out while the others die
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        return time.time()

    def _pids(self) -> list[int]:
        assert self._process is not None
        found = [self._process.pid]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == self._process.pid:
                        found.append(int(entry.name))
        return found

    def stop(self) -> None:
        """Stop it, fast."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def has_ended(self, seconds: float = 20.0) -> bool:
        """Whether it ends by itself."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        return True

    def copy_to(self, other: Cluster, *, settings: Mapping[str, str], follows: bool) -> None:
        """Copy its files while it runs, as a standby that follows it or as they are."""
        standby = ["-R"] if follows else []
        self.run("pg_basebackup", "-D", str(other.data), "-d", f"{self.address} user=postgres", "-c", "fast", *standby)
        other.configure({"unix_socket_directories": str(other.sockets), **settings})

    def promote(self) -> None:
        """Let a standby take writes."""
        self.admin("SELECT pg_promote(true, 30)")

    def dsn(self, *others: Cluster, options: str = "") -> str:
        """Where the database of the tests is: this server, or whichever of several takes writes."""
        hosts = ",".join(str(cluster.sockets) for cluster in (self, *others))
        ports = ",".join("5432" for _ in (self, *others))
        return f"postgresql://{ROLE}@/{DATABASE}?host={hosts}&port={ports}{options}"

    def install(self) -> str:
        """Make a migrated database with an audit, which is its installation's home; its address."""
        self.admin(f"CREATE ROLE {ROLE} LOGIN")
        self.admin(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
        migrate(self.dsn(), SCHEMA)
        with psycopg.connect(self.dsn()) as conn:
            conn.execute("CREATE TABLE effect (key text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())")
        history_audit.install(self.dsn(), SCHEMA)
        return self.dsn()


class Machines:
    """Makes clusters, and cleans up after them."""

    def __init__(self, home: Path, runner: Runner) -> None:
        self._home, self._runner = home, runner
        self.clusters: list[Cluster] = []

    def empty(self, name: str) -> Cluster:
        """A place for files that come from elsewhere."""
        self.clusters.append(Cluster(self._home / name, self._runner))
        return self.clusters[-1]

    def cluster(self, name: str, **settings: str) -> Cluster:
        """A server that runs."""
        made = self.empty(name)
        made.create(settings)
        made.start()
        return made


@contextmanager
def machines(version: str = "pg18") -> Iterator[Machines]:
    """Have clusters of that version; they and their files go at the end."""
    home = Path(tempfile.mkdtemp(prefix="samecommit-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    with binaries(version), _removed(home):
        made = Machines(home, choose_runner(home, find_binaries()))
        try:
            yield made
        finally:
            for cluster in made.clusters:
                cluster.kill()


@contextmanager
def _removed(home: Path) -> Generator[None]:
    try:
        yield
    finally:
        shutil.rmtree(home, ignore_errors=True)
