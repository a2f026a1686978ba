"""What every test may ask for: a server, a fresh database on it, a connection, an application.

``async def`` tests run in an event loop of their own. Tests marked ``pg15`` run on both versions, the others on the
embedded one.
"""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.support.database import VERSIONS, Database, started
from tests.support.jobs import Jobs

from samecommit import App


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the tests that hurt what they test."""
    parser.addoption("--seed", type=int, help="throw the dice of tests/faults as in the run that printed this")
    parser.addoption("--full", action="store_true", help="with -m faults: the long storms too")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function, unless a plugin was asked to."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or pyfuncitem.get_closest_marker("anyio"):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what needs a server on one version, or on both."""
    if "server" in metafunc.fixturenames:
        versions = VERSIONS if metafunc.definition.get_closest_marker("pg15") else VERSIONS[:1]
        metafunc.parametrize("server", versions, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A PostgreSQL without fsync, for as long as the session lasts."""
    with started(request.param) as database:
        yield database


@pytest.fixture
def dsn(server: Database) -> Iterator[str]:
    """A migrated database of the test's own."""
    with server.fresh() as address:
        yield address


@pytest.fixture
def empty_dsn(server: Database) -> Iterator[str]:
    """A database in which nothing is installed."""
    with server.fresh(migrated=False) as address:
        yield address


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that commits each statement, to look and to call the contract's functions."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def app(dsn: str) -> App:
    """An application without tasks."""
    return App(dsn)


@pytest.fixture
def jobs(conn: psycopg.Connection[Any]) -> Jobs:
    """What has become of the jobs."""
    return Jobs(conn)
