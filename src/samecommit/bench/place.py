"""Where a measurement runs: a scratch schema on the user's database or on an embedded server, dropped at the end."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from samecommit.app import App
from samecommit.errors import ConfigError

PAYLOAD = '{"submission_id": 12345, "email": "someone@example.com", "note": "' + "x" * 60 + '"}'
_BUSY_BACKENDS = 3


@dataclass(slots=True)
class Place:
    """A scratch installation, and ways to look at what it costs."""

    dsn: str
    schema: str
    server_pid: int | None
    folder: Path

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
        self, jobs: int, *, kind: str = "noop", payload: str = PAYLOAD, later_seconds: float | None = None
    ) -> None:
        """Put jobs in line (or for later) as fast as one statement can, then vacuum."""
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
        return ticks / 100.0

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
def open_place(dsn: str | None, *, may_disturb: bool) -> Generator[Place]:
    """Give a scratch installation, embedded when no database is named, and clean up whatever happens.

    Raises:
        ConfigError: other sessions work on the server and ``may_disturb`` was not said.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="samecommit-bench-")))
        server_pid = None
        if dsn is None:
            from samecommit.embedded import EmbeddedServer

            server = stack.enter_context(EmbeddedServer(settings={"shared_buffers": "512MB", "max_wal_size": "8GB"}))
            dsn, server_pid = server.dsn, server.server_pid
        elif not may_disturb:
            _refuse_busy(dsn)
        place = Place(dsn, f"samecommit_bench_{secrets.token_hex(4)}", server_pid, folder)
        stack.callback(place.drop)
        place.renew()
        yield place


def _refuse_busy(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'"
        ).fetchone()
    if row and row[0] >= _BUSY_BACKENDS:
        msg = f"{row[0]} other sessions are working on this server, and measuring would disturb them: say --yes if that is fine"
        raise ConfigError(msg)
