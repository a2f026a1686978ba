"""The servers that tests run on: one for each PostgreSQL version, with a fresh database for each test.

A database is a copy of a migrated template. Tests connect as an ordinary role that owns it; only this module is superuser.
"""

import itertools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from samecommit.embedded import EmbeddedServer
from samecommit.storage.migrate import migrate
from samecommit.testing.plugin import forget_home

ROLE = "samecommit_test"
SCHEMA = "samecommit"
# jit: a look at a view over many days would compile for seconds; workers and commands switch it off by themselves
SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "200", "jit": "off"}
VERSIONS = ("pg18", "pg15")
_PG_BIN = "SAMECOMMIT_PG_BIN"


class Database:
    """A running server, and the databases made on it."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self.major = int(server.version.partition(".")[0])
        self._numbers = itertools.count()
        self._left: list[str] = []
        self._admin = psycopg.connect(server.dsn, autocommit=True)
        self.execute(f"CREATE ROLE {ROLE} LOGIN")
        self.execute(f"CREATE DATABASE empty_template OWNER {ROLE}")
        self.execute(f"CREATE DATABASE template TEMPLATE empty_template OWNER {ROLE}")
        migrate(self.dsn_of("template"), SCHEMA)
        forget_home(self.dsn_of("template"), SCHEMA)
        with psycopg.connect(self.dsn_of("template"), autocommit=True) as conn:
            conn.execute(Path(__file__).with_name("sound.sql").read_bytes())
        for name in ("template", "empty_template"):
            self.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")

    def execute(self, statement: str) -> None:
        """Run a statement as the superuser, in the database `postgres`."""
        self._admin.execute(statement.encode())

    def dsn_of(self, name: str) -> str:
        """Return where a database is, for the role of the tests."""
        return self.server.dsn_for(name).replace("postgresql://postgres@", f"postgresql://{ROLE}@")

    @contextmanager
    def fresh(self, *, migrated: bool = True) -> Iterator[str]:
        """Make a database and give its address.

        It is dropped two databases later: a backend takes a moment to end, and a drop that meets one waits for 100 ms.
        """
        name = f"test_{next(self._numbers)}"
        template = "template" if migrated else "empty_template"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {ROLE}")
        try:
            yield self.dsn_of(name)
        finally:
            self._left.append(name)
            if len(self._left) > 2:
                self.execute(f"DROP DATABASE {self._left.pop(0)} WITH (FORCE)")

    def close(self) -> None:
        """Let the server go, with what is left on it."""
        self._admin.close()
        self.server.stop()


@contextmanager
def started(version: str, settings: dict[str, str] | None = None) -> Iterator[Database]:
    """Start the server of that version, or skip; with ``SAMECOMMIT_CI=1`` a missing one fails."""
    with binaries(version), _in_memory():
        server = EmbeddedServer(settings=SETTINGS if settings is None else settings).start()
    assert server.version.startswith(version.removeprefix("pg")), server.version
    database = Database(server)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _in_memory() -> Iterator[None]:
    """Make temporary directories in memory, where there is such a place: a database is hundreds of small files."""
    before = tempfile.tempdir
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def binaries(version: str) -> Iterator[None]:
    before = os.environ.pop(_PG_BIN, None)
    try:
        if version != "pg18":
            os.environ[_PG_BIN] = str(_directory(version.removeprefix("pg"), before))
        yield
    finally:
        os.environ.pop(_PG_BIN, None)
        if before is not None:
            os.environ[_PG_BIN] = before


def _directory(major: str, named: str | None) -> Path:
    for place in (named, f"/usr/lib/postgresql/{major}/bin"):
        if place is not None and (program := Path(place, "postgres")).exists():
            shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"\) {major}\.", shown):
                return Path(place)
    missing(f"no PostgreSQL {major}: install it, or set {_PG_BIN} to its bin directory")
    raise AssertionError


def missing(reason: str) -> None:
    """Skip for want of something on this machine; where everything is installed, fail."""
    if os.environ.get("SAMECOMMIT_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
