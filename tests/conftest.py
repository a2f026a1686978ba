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
from tests.support.pooler import behind, pooler, prepares, unprepared

from samecommit import App


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the tests that hurt what they test."""
    parser.addoption("--seed", type=int, help="throw the dice of tests/faults as in the run that printed this")
    parser.addoption("--full", action="store_true", help="with -m faults: the long storms too")
    parser.addoption("--deploys", type=int, default=200, help="with --full: how many SIGTERMs, 200 by default")
    parser.addoption("--result", help="with --deploys: write what they came to there, as JSON")
    parser.addoption(
        "--pooler", action="store_true", help="put PgBouncer in transaction mode before the databases of all tests"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run three tests of faults at once, since they wait most of the time; with ``--full`` one, which has the machine."""
    if config.getoption("markexpr") != "faults":
        return None
    return 0 if config.getoption("--full") else 3


def pytest_configure(config: pytest.Config) -> None:
    """Prepare no statements behind an old pooler, as the page on poolers tells applications to do."""
    if config.getoption("--pooler") and not prepares():
        unprepared()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Behind a pooler, skip what needs a session, each for the reason that its mark gives."""
    if config.getoption("--pooler"):
        for item in items:
            if mark := item.get_closest_marker("session"):
                item.add_marker(pytest.mark.skip(reason=f"behind a pooler there is no session for {mark.args[0]}"))


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


@pytest.fixture(scope="session")
def port(request: pytest.FixtureRequest, server: Database) -> Iterator[int | None]:
    """Where PgBouncer listens before that server, with ``--pooler``."""
    if not request.config.getoption("--pooler"):
        yield None
        return
    with pooler(server.dsn_of("template"), size=20, ready="postgres") as listening:
        yield listening


@pytest.fixture
def dsn(server: Database, port: int | None) -> Iterator[str]:
    """A migrated database of the test's own; with ``--pooler`` its address leads through the pooler."""
    with server.fresh() as address:
        yield address if port is None else behind(address, port)


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
