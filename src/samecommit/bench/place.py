"""Where a measurement runs: a scratch schema on the user's database or on an embedded server, dropped at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from samecommit.app import App
from samecommit.errors import ConfigError, SamecommitError

PAYLOAD = '{"submission_id": 12345, "email": "someone@example.com", "note": "' + "x" * 60 + '"}'
_BUSY_BACKENDS = 3
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "max_connections": "200"}


@dataclass(slots=True)
class Place:
    """A scratch installation, and ways to look at what it costs.

    Args:
        dsn: the database.
        schema: the installation's, dropped and made anew by each measurement.
        server_pid: the postmaster's process, None when it runs elsewhere.
        folder: for files between processes.
        is_ours: whether the server was started for the measurements, so that another one can be.
    """

    dsn: str
    schema: str
    server_pid: int | None
    folder: Path
    is_ours: bool

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Open an autocommit connection whose search_path is the scratch schema."""
        conn = psycopg.connect(self.dsn, autocommit=True, application_name="samecommit bench", **options)
        conn.execute(sql.SQL("SET search_path = {}, pg_catalog").format(sql.Identifier(self.schema)))
        return conn

    def ask(self, query: sql.SQL, *values: Any) -> Any:
        """Return the first column of a query's first row."""
        with self.connect() as conn:
            row = conn.execute(query, values).fetchone()
            return row[0] if row else None

    def renew(self) -> None:
        """Drop the schema and install it again: every measurement begins with empty tables."""
        self.drop()
        App(self.dsn, schema=self.schema).migrate()

    def drop(self) -> None:
        """Drop the schema and all that is in it."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute("SET client_min_messages = warning")
            conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema)))

    def fill(
        self,
        jobs: int,
        *,
        kind: str = "noop",
        payload: str = PAYLOAD,
        later_seconds: float | None = None,
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Put jobs in line (or for later) as fast as one statement can, then vacuum; ``told`` hears how many are there."""
        is_due = later_seconds is None
        now = sql.SQL("clock_timestamp()")
        run_at = (
            now
            if is_due
            else sql.SQL("clock_timestamp() + make_interval(secs => {})").format(sql.Literal(later_seconds))
        )
        pos = sql.SQL("nextval('pos_seq')") if is_due else sql.SQL("NULL")
        with self.connect() as conn:
            conn.execute("SET synchronous_commit = off")
            for begun in range(0, jobs, 250_000):
                conn.execute(
                    sql.SQL(
                        "INSERT INTO job (queue_id, kind, pos, run_at, payload) "
                        "SELECT 1, %s, {}, {}, %s::jsonb FROM generate_series(1, %s)"
                    ).format(pos, run_at),
                    (kind, payload, min(250_000, jobs - begun)),
                )
                told(begun)
            conn.execute("VACUUM ANALYZE job")

    def wal_bytes(self) -> int:
        """Return how much WAL the server has written so far."""
        return int(self.ask(sql.SQL("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")))

    def server_cpu_seconds(self) -> float | None:
        """Return the CPU time of all the server's processes so far; None when they cannot be seen from here.

        Backends that have ended are counted by the postmaster, which waits for them.
        """
        if self.server_pid is None:
            return None
        ticks = _ticks(self.server_pid, reaped=True)
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{self.server_pid}/task/{self.server_pid}/children").read_text().split():
                ticks += _ticks(int(child), reaped=False)
        return ticks / _TICKS_PER_SECOND

    def backend_cpu_seconds(self) -> float | None:
        """Return the CPU time so far of the backends that work for Samecommit now; None when they cannot be seen."""
        if self.server_pid is None:
            return None
        with self.connect() as conn:
            rows = conn.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name LIKE 'samecommit %' AND application_name <> 'samecommit bench'"
            ).fetchall()
        return sum(_ticks(pid, reaped=False) for (pid,) in rows) / _TICKS_PER_SECOND

    def wait_until_left(self, jobs: int, seconds: float = 3600.0) -> None:
        """Wait until no more than so many jobs are unfinished.

        Raises:
            SamecommitError: it takes longer than ``seconds``.
        """
        until = time.monotonic() + seconds
        with self.connect() as conn:
            while conn.execute("SELECT 1 FROM job OFFSET %s LIMIT 1", (jobs,)).fetchone():
                if time.monotonic() > until:
                    msg = f"after {seconds:.0f} s more than {jobs:,} jobs are unfinished: the measured worker stands still"
                    raise SamecommitError(msg)
                time.sleep(0.05)

    def describe(self) -> dict[str, Any]:
        """Return versions and settings for the caption."""
        names = ("server_version", "shared_buffers", "fsync", "synchronous_commit", "wal_level", "full_page_writes")
        return {name: self.ask(sql.SQL("SELECT current_setting(%s)"), name) for name in names}


def _ticks(pid: int, *, reaped: bool) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(fields[n]) for n in ((11, 12, 13, 14) if reaped else (11, 12)))


@contextmanager
def open_place(
    dsn: str | None, *, may_disturb: bool = False, settings: Mapping[str, str] | None = None
) -> Generator[Place]:
    """Give a scratch installation, embedded when no database is named, and clean up whatever happens.

    Args:
        dsn: the database; None starts a server.
        may_disturb: measure although other sessions work there.
        settings: further ones for the server that is started.

    Raises:
        ConfigError: the connection goes through a pooler; other sessions work on the server and ``may_disturb`` was not said.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="samecommit-bench-")))
        is_ours = dsn is None
        if dsn is None:
            from samecommit.embedded import EmbeddedServer

            server = stack.enter_context(EmbeddedServer(settings={**_SETTINGS, **(settings or {})}))
            dsn = server.dsn
        else:
            _refuse_pooler(dsn)
            if not may_disturb:
                _refuse_busy(dsn)
        place = Place(dsn, f"samecommit_bench_{secrets.token_hex(4)}", _postmaster(dsn), folder, is_ours)
        stack.callback(place.drop)
        place.renew()
        yield place


@contextmanager
def another(place: Place, settings: Mapping[str, str]) -> Generator[Place | None]:
    """Give a place with other server settings; the same one where it has them already, None on a user's server."""
    if all(place.ask(sql.SQL("SELECT current_setting(%s)"), name) == value for name, value in settings.items()):
        yield place
    elif place.is_ours:
        with open_place(None, settings=settings) as found:
            yield found
    else:
        yield None


def _postmaster(dsn: str) -> int | None:
    """Return the server's process if it runs on this machine and its processes can be seen."""
    with psycopg.connect(dsn) as conn:
        try:
            name, _, rest = Path(f"/proc/{conn.info.backend_pid}/stat").read_text().rpartition(")")
        except OSError:
            return None
    return int(rest.split()[1]) if "(postgres" in name else None


def _refuse_pooler(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT pg_backend_pid()").fetchone()
        is_direct = row == (conn.info.backend_pid,)  # a pooler tells its clients a number of its own
    if not is_direct:
        msg = (
            "this connection goes through a pooler, whose other clients would be left with the settings of the measurements: "
            "give the server's own address"
        )
        raise ConfigError(msg)


def _refuse_busy(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'"
        ).fetchone()
    if row and row[0] >= _BUSY_BACKENDS:
        msg = f"{row[0]} other sessions are working on this server, and measuring would disturb them: say --yes if that is fine"
        raise ConfigError(msg)
