"""What the conformance suite knows of a broker: a sink that writes to it through a proxy, and what has arrived there."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tests.sinks.proxy import Proxy
from tests.sinks.servers import Server

from samecommit.outbox.sink import Sink


@dataclass(frozen=True, kw_only=True)
class Got:
    """An event as a receiver sees it."""

    id: str
    key: str | None
    data: bytes
    attributes: dict[str, str]


class Broker(ABC):
    """One kind of destination, with a place of its own (stream, queue, topic) for each test.

    Attributes:
        shows_repeats: a receiver may see an event twice after a doubt.
        owns_its_place: two destinations cannot share a place.
    """

    shows_repeats = False
    owns_its_place = False

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = f"t{secrets.token_hex(6)}"
        self.proxy = Proxy(server.port)

    async def open(self) -> None:
        """Make the place."""
        await self.proxy.open()
        await self.make()

    async def close(self) -> None:
        self.proxy.heal()
        await self.proxy.close()

    @abstractmethod
    async def make(self) -> None:
        """Make the stream, queue or topic."""

    @abstractmethod
    def sink(self) -> Sink:
        """Return a new sink that connects through the proxy."""

    @abstractmethod
    async def received(self) -> list[Got]:
        """Return everything that has arrived, in the order of arrival, read past the proxy."""

    # What goes wrong; brokers without a proxy before them do it in their own way.

    def refuse(self) -> None:
        """Let nobody in."""
        self.proxy.refuses = True
        self.proxy.cut()

    def heal(self) -> None:
        self.proxy.heal()

    def slow(self, seconds: float) -> None:
        """Answer later by so much."""
        self.proxy.delay = seconds

    def lose_answer(self, marker: str) -> None:
        """Take what holds the marker, and let nobody know."""
        self.proxy.lose_answer = marker.encode()

    def cut_in(self, marker: str) -> None:
        """Cut the connection when the marker is about to come."""
        self.proxy.cut_in = marker.encode()

    @property
    def fired(self) -> int:
        """How often a connection was cut as asked."""
        return self.proxy.fired

    def restart(self) -> None:
        """Kill the server and start it again."""
        self.server.kill()
        self.server.start()


def texts(fields: dict[Any, Any]) -> dict[str, str]:
    """Return names and values as text."""
    return {_text(name): _text(value) for name, value in fields.items()}


def _text(value: Any) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
