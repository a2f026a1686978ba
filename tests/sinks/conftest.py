"""One server of each kind for the session, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sinks.broker import Broker
from tests.sinks.servers import Server, ministack_server, nats_server, rabbitmq_server, redis_server


class Start:
    """Starts a server once, and gives the same one afterwards."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories = directories
        self._servers: dict[str, Server] = {}

    def __call__(self, make: Callable[[Path], Server]) -> Server:
        if make.__name__ not in self._servers:
            server = make(self.directory(make.__name__))
            server.start()
            self._servers[make.__name__] = server
        return self._servers[make.__name__]

    def directory(self, name: str) -> Path:
        """Return a new directory."""
        return self._directories.mktemp(name)

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """The servers of this session."""
    start = Start(tmp_path_factory)
    yield start
    start.stop()


def _redis(started: Start) -> Broker:
    from tests.sinks.broker_redis import RedisBroker

    return RedisBroker(started(redis_server))


def _nats(started: Start) -> Broker:
    from tests.sinks.broker_nats import NatsBroker

    return NatsBroker(started(nats_server))


def _owned_nats(started: Start) -> Broker:
    from tests.sinks.broker_nats import OwnedNatsBroker

    return OwnedNatsBroker(started(nats_server))


def _kafka(started: Start) -> Broker:
    from tests.sinks.broker_kafka import KafkaBroker

    return KafkaBroker(started.directory("kafka"))


def _transactional_kafka(started: Start) -> Broker:
    from tests.sinks.broker_kafka import TransactionalKafkaBroker

    return TransactionalKafkaBroker(started.directory("kafka"))


def _rabbitmq(started: Start) -> Broker:
    from tests.sinks.broker_rabbitmq import RabbitBroker

    return RabbitBroker(started(rabbitmq_server))


def _aws(name: str) -> Callable[[Start], Broker]:
    def make(started: Start) -> Broker:
        from tests.sinks import broker_aws

        made: Broker = getattr(broker_aws, name)(started(ministack_server))
        return made

    return make


BROKERS: dict[str, Callable[[Start], Broker]] = {
    "redis": _redis,
    "nats": _nats,
    "nats owned": _owned_nats,
    "kafka": _kafka,
    "kafka transactional": _transactional_kafka,
    "rabbitmq": _rabbitmq,
    "sqs": _aws("SqsBroker"),
    "sqs fifo": _aws("SqsFifoBroker"),
    "sns": _aws("SnsBroker"),
    "sns fifo": _aws("SnsFifoBroker"),
}


SLOW = {"kafka transactional", "sqs", "sns fifo"}
PARAMS = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in BROKERS]


def broker_of(name: str, started: Start) -> Broker:
    """Return a broker of that kind."""
    return BROKERS[name](started)


@pytest.fixture(params=PARAMS)
def broker(request: pytest.FixtureRequest, started: Start) -> Broker:
    """A broker of each kind; a test opens it in its own event loop."""
    return broker_of(request.param, started)
