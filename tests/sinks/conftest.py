"""One server of each kind for the session, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.sinks.broker import Broker
from tests.sinks.servers import Server, nats_server, redis_server

Start: TypeAlias = Callable[[Callable[[Path], Server]], Server]


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a server once; the same one afterwards."""
    servers: dict[str, Server] = {}

    def start(make: Callable[[Path], Server]) -> Server:
        if make.__name__ not in servers:
            server = make(tmp_path_factory.mktemp(make.__name__))
            server.start()
            servers[make.__name__] = server
        return servers[make.__name__]

    yield start
    for server in servers.values():
        server.stop()


def _redis(started: Start) -> Broker:
    from tests.sinks.broker_redis import RedisBroker

    return RedisBroker(started(redis_server))


def _nats(started: Start) -> Broker:
    from tests.sinks.broker_nats import NatsBroker

    return NatsBroker(started(nats_server))


def _owned_nats(started: Start) -> Broker:
    from tests.sinks.broker_nats import OwnedNatsBroker

    return OwnedNatsBroker(started(nats_server))


BROKERS: dict[str, Callable[[Start], Broker]] = {"redis": _redis, "nats": _nats, "nats owned": _owned_nats}


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, started: Start) -> Broker:
    """A broker of each kind; a test opens it in its own event loop."""
    return BROKERS[request.param](started)
