"""A server of its own for what hurts servers, with databases whose every change is audited."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from tests.support import history_audit

from samecommit.embedded import EmbeddedServer
from samecommit.storage.migrate import migrate
from samecommit.testing.plugin import forget_home

ROLE = "samecommit_faults"
SCHEMA = "samecommit"
SETTINGS = {"max_connections": "120", "log_line_prefix": "%m [%p] %a %e ", "log_min_error_statement": "panic"}


class Arena:
    """A running server that may be stopped, restarted and starved."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self._numbers = itertools.count()
        self.admin(f"CREATE ROLE {ROLE} LOGIN")
        self.admin(f"CREATE DATABASE ground OWNER {ROLE}")
        self._make_template(self.dsn_of("ground"))

    def __repr__(self) -> str:
        return f"<Arena {self.server!r}>"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.server.data_dir / "postgres.log"

    def admin(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement as superuser, on a connection of its own."""
        with psycopg.connect(self.server.dsn, autocommit=True, connect_timeout=5) as conn:
            cursor = conn.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def dsn_of(self, name: str, role: str = ROLE) -> str:
        """Where a database is, for the role of the tests."""
        return self.server.dsn_for(name).replace("//postgres@", f"//{role}@")

    @staticmethod
    def _make_template(dsn: str) -> None:
        migrate(dsn, SCHEMA)
        with psycopg.connect(dsn) as conn:
            conn.execute("CREATE TABLE effect (key text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())")
        history_audit.install(dsn, SCHEMA)
        forget_home(dsn, SCHEMA)

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """Make a migrated database with an audit and a table for effects; it goes at the end."""
        name = f"storm_{next(self._numbers)}"
        self.admin(f"CREATE DATABASE {name} TEMPLATE ground OWNER {ROLE}")
        try:
            yield self.dsn_of(name)
        finally:
            self.wait_until_up()
            self.admin(f"DROP DATABASE {name} WITH (FORCE)")

    def wait_until_up(self, seconds: float = 60.0) -> float:
        """Wait until it takes connections again; the moment it does."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.admin("SELECT 1")
                return time.time()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)


@contextmanager
def arena(**settings: str) -> Iterator[Arena]:
    """Start a server for faults."""
    with EmbeddedServer(settings={**SETTINGS, **settings}) as server:
        yield Arena(server)
