"""A start waits for a database that is away, and not for one that does not want us."""

import asyncio

import pytest
from psycopg.conninfo import make_conninfo
from tests.support.recorder import Recorder

from samecommit.errors import SchemaMissing
from samecommit.runtime import reach as module
from samecommit.runtime.reach import is_hopeless, reach
from samecommit.signals import ServiceFailed, ServiceRecovered, Signals
from samecommit.storage.link import AsyncLink, LinkDown

AWAY = [
    'connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused',
    "failed to resolve host 'db': [Errno -2] Name or service not known",
    'connection to server on socket "/x/.s.PGSQL.5432" failed: No such file or directory',
    "connection timeout expired",
    'connection to server at "db" (10.0.0.1), port 5432 failed: FATAL:  the database system is starting up',
    'connection to server at "db" (10.0.0.1), port 5432 failed: FATAL:  sorry, too many clients already',
    "server closed the connection unexpectedly",
]
REFUSED = [
    'connection to server at "db", port 5432 failed: FATAL:  password authentication failed for user "me"',
    'connection to server at "db", port 5432 failed: fe_sendauth: no password supplied',
    'connection to server at "db", port 5432 failed: FATAL:  database "shop" does not exist',
    'connection to server at "db", port 5432 failed: FATAL:  role "me" does not exist',
    'connection to server at "db", port 5432 failed: FATAL:  no pg_hba.conf entry for host "10.0.0.2", user "me"',
    'connection to server at "db", port 5432 failed: SSL error: certificate verify failed',
    'connection to server at "db", port 5432 failed: server does not support SSL, but SSL was required',
    'connection to server at "db", port 5432 failed: FATAL:  permission denied for database "shop"',
]


def away() -> AsyncLink:
    return AsyncLink("host=127.0.0.1 port=1", "samecommit", "test")


@pytest.mark.parametrize("text", AWAY)
def test_what_may_pass_is_waited_for(text: str) -> None:
    assert not is_hopeless(LinkDown(text))


@pytest.mark.parametrize("text", REFUSED)
def test_what_waiting_does_not_cure_is_not(text: str) -> None:
    assert is_hopeless(LinkDown(text))


async def test_a_server_that_comes_is_found(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    signals, link = Signals(), away()
    recorder = Recorder(signals)

    def come(signal: object) -> None:
        if isinstance(signal, ServiceFailed) and len(recorder.all(ServiceFailed)) == 2:
            link.dsn = dsn

    signals.subscribe(come)
    assert await reach(link, signals, asyncio.Event())
    await link.close()
    assert all("Connection refused" in signal.error for signal in recorder.all(ServiceFailed))
    assert recorder.all(ServiceRecovered) == [ServiceRecovered(service="connecting", failures=2)]


async def test_a_stop_ends_the_wait() -> None:
    signals, stopped = Signals(), asyncio.Event()
    signals.subscribe(lambda _: stopped.set())
    assert not await reach(away(), signals, stopped)


async def test_patience_has_an_end() -> None:
    with pytest.raises(LinkDown, match="refused"):
        await reach(away(), Signals(), asyncio.Event(), 0.05)


async def test_a_missing_database_or_schema_is_told_at_once(empty_dsn: str) -> None:
    nowhere = AsyncLink(make_conninfo(empty_dsn, dbname="nowhere"), "samecommit", "test")
    with pytest.raises(LinkDown, match="does not exist"):
        await reach(nowhere, Signals(), asyncio.Event())
    empty = AsyncLink(empty_dsn, "samecommit", "test")
    with pytest.raises(SchemaMissing, match="run samecommit migrate"):
        await reach(empty, Signals(), asyncio.Event())
    await empty.close()
