"""The pytest plugin, loaded by its entry point: an embedded server for the session, a fresh database for each test.

``samecommit_dsn`` is a migrated database of the test's own, made from a template; ``SAMECOMMIT_DSN`` names it for as long as the
test runs, so that an application made with ``App()`` uses it. ``--samecommit-dsn`` names a server to use instead of the embedded
one: a database on which databases may be created. Several processes may share it (pytest-xdist, two runs at once).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Self

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from samecommit.storage.query import statement

_TEMPLATE = "samecommit_template_"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the plugin's options."""
    group = parser.getgroup("samecommit")
    group.addoption("--samecommit-dsn", help="use this server for samecommit_dsn instead of an embedded one")
    group.addoption("--samecommit-schema", default="samecommit", help="the schema to install in")


@pytest.fixture(scope="session")
def samecommit_template(request: pytest.FixtureRequest) -> Iterator[Template]:
    """The migrated template database of this process."""
    named: str | None = request.config.getoption("--samecommit-dsn")
    schema = str(request.config.getoption("--samecommit-schema"))
    if named is not None:
        with Template(named, schema) as template:
            yield template
        return
    from samecommit.embedded import EmbeddedServer

    with EmbeddedServer(settings={"fsync": "off"}) as server, Template(server.dsn, schema) as template:
        yield template


@pytest.fixture(scope="session")
def samecommit_server(samecommit_template: Template) -> str:
    """The DSN of a server with a migrated template database; embedded and without fsync unless one was named."""
    return samecommit_template.server


class Template:
    """A migrated database of this process alone, from which those of its tests are made; one that a killed process left is dropped.

    Args:
        server: any database on the server; an advisory lock there is kept for as long as the template is in use.
        schema: where to install.
    """

    def __init__(self, server: str, schema: str) -> None:
        self.server, self.name, self._schema = server, f"{_TEMPLATE}{secrets.token_hex(6)}", schema

    def __enter__(self) -> Self:
        self._user = psycopg.connect(self.server, autocommit=True)
        self._is_mine(self.name)
        self._drop_left()
        _run(self.server, "CREATE DATABASE {}", self.name)
        from samecommit.app import App

        dsn = make_conninfo(self.server, dbname=self.name)
        App(dsn, schema=self._schema).migrate()
        forget_home(dsn, self._schema)
        return self

    def __exit__(self, *_: object) -> None:
        _run(self.server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)
        self._user.close()

    def _drop_left(self) -> None:
        # the lock of a process that came through another database of the server is no rival to ours, but shown to all
        found = (
            "SELECT d.datname FROM pg_database AS d WHERE d.datname ~ %s AND pg_has_role(d.datdba, 'MEMBER') "
            "AND NOT EXISTS (SELECT FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.objsubid = 1 "
            "AND l.objid = (hashtext(d.datname::text)::bigint & 4294967295)::oid)"
        )
        for (name,) in self._user.execute(found, [f"^{_TEMPLATE}[0-9a-f]{{12}}$"]).fetchall():
            if name != self.name and self._is_mine(name):
                _run(self.server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _is_mine(self, name: str) -> bool:
        """Whether no other process uses that template."""
        row = self._user.execute("SELECT pg_try_advisory_lock(hashtext(%s))", [name]).fetchone()
        return row == (True,)


@pytest.fixture
def samecommit_dsn(samecommit_template: Template, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fresh migrated database; ``SAMECOMMIT_DSN`` names it during the test."""
    name = f"samecommit_{secrets.token_hex(6)}"
    server = samecommit_template.server
    _run(server, "CREATE DATABASE {} TEMPLATE {}", name, samecommit_template.name)
    dsn = make_conninfo(server, dbname=name)
    monkeypatch.setenv("SAMECOMMIT_DSN", dsn)
    yield dsn
    _run(server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def forget_home(dsn: str, schema: str) -> None:
    """Let workers work in every copy of this database, as in a template of test databases."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement("testing/forget_home", schema).text)


def _run(dsn: str, command: Any, *names: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET client_min_messages = warning")
        conn.execute(sql.SQL(command).format(*map(sql.Identifier, names)))
