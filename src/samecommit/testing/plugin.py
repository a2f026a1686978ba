"""The pytest plugin, loaded by its entry point: an embedded server for the session, a fresh database for each test.

``samecommit_dsn`` is a migrated database of the test's own, made from a template; ``SAMECOMMIT_DSN`` names it for as long as the
test runs, so that an application made with ``App()`` uses it. ``--samecommit-dsn`` names a server to use instead of the embedded
one: a database on which databases may be created.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from samecommit.storage.query import statement

_TEMPLATE = "samecommit_template"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the plugin's options."""
    group = parser.getgroup("samecommit")
    group.addoption("--samecommit-dsn", help="use this server for samecommit_dsn instead of an embedded one")
    group.addoption("--samecommit-schema", default="samecommit", help="the schema to install in")


@pytest.fixture(scope="session")
def samecommit_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The DSN of a server with a migrated template database; embedded and without fsync unless one was named."""
    named: str | None = request.config.getoption("--samecommit-dsn")
    schema = str(request.config.getoption("--samecommit-schema"))
    if named is not None:
        with _template(named, schema):
            yield named
        return
    from samecommit.embedded import EmbeddedServer

    with EmbeddedServer(settings={"fsync": "off"}) as server, _template(server.dsn, schema):
        yield server.dsn


class _template:  # noqa: N801 - used as a block
    def __init__(self, dsn: str, schema: str) -> None:
        self._dsn, self._schema = dsn, schema

    def __enter__(self) -> None:
        _run(self._dsn, "DROP DATABASE IF EXISTS {}", _TEMPLATE)
        _run(self._dsn, "CREATE DATABASE {}", _TEMPLATE)
        from samecommit.app import App

        dsn = make_conninfo(self._dsn, dbname=_TEMPLATE)
        App(dsn, schema=self._schema).migrate()
        forget_home(dsn, self._schema)

    def __exit__(self, *_: object) -> None:
        _run(self._dsn, "DROP DATABASE IF EXISTS {} WITH (FORCE)", _TEMPLATE)


@pytest.fixture
def samecommit_dsn(samecommit_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fresh migrated database; ``SAMECOMMIT_DSN`` names it during the test."""
    name = f"samecommit_{secrets.token_hex(6)}"
    _run(samecommit_server, "CREATE DATABASE {} TEMPLATE {}", name, _TEMPLATE)
    dsn = make_conninfo(samecommit_server, dbname=name)
    monkeypatch.setenv("SAMECOMMIT_DSN", dsn)
    yield dsn
    _run(samecommit_server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def forget_home(dsn: str, schema: str) -> None:
    """Let workers work in every copy of this database, as in a template of test databases."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement("testing/forget_home", schema).text)


def _run(dsn: str, command: Any, *names: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET client_min_messages = warning")
        conn.execute(sql.SQL(command).format(*map(sql.Identifier, names)))
