"""A start waits for a database that is away, and not for one that does not want us."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.support.recorder import Recorder

from samecommit.errors import SchemaMissing
from samecommit.signals import ServiceFailed, ServiceRecovered, Signals
from samecommit.worker import reach as module
from samecommit.worker.reach import is_hopeless, reach

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


@pytest.mark.parametrize("text", AWAY)
def test_what_may_pass_is_waited_for(text: str) -> None:
    assert not is_hopeless(psycopg.OperationalError(text))


@pytest.mark.parametrize("text", REFUSED)
def test_what_waiting_does_not_cure_is_not(text: str) -> None:
    assert is_hopeless(psycopg.OperationalError(text))


async def test_a_server_that_comes_is_found(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, tries = psycopg.connect, 0

    def away_at_first(*args: Any, **kwargs: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise psycopg.OperationalError(AWAY[tries])
        return connect(*args, **kwargs)

    monkeypatch.setattr(psycopg, "connect", away_at_first)
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    signals = Signals()
    recorder = Recorder(signals)
    assert await reach(dsn, "samecommit", signals, asyncio.Event(), None)
    assert [signal.error for signal in recorder.all(ServiceFailed)] == AWAY[1:3]
    assert recorder.all(ServiceRecovered) == [ServiceRecovered(service="connecting", failures=2)]


async def test_a_stop_ends_the_wait() -> None:
    signals, stopped = Signals(), asyncio.Event()
    signals.subscribe(lambda _: stopped.set())
    assert not await reach("host=127.0.0.1 port=1", "samecommit", signals, stopped, None)


async def test_patience_has_an_end() -> None:
    with pytest.raises(psycopg.OperationalError, match="refused"):
        await reach("host=127.0.0.1 port=1", "samecommit", Signals(), asyncio.Event(), 0.05)


async def test_a_missing_database_or_schema_is_told_at_once(empty_dsn: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        await reach(make_conninfo(empty_dsn, dbname="nowhere"), "samecommit", Signals(), asyncio.Event(), None)
    with pytest.raises(SchemaMissing, match="run samecommit migrate"):
        await reach(empty_dsn, "samecommit", Signals(), asyncio.Event(), None)
