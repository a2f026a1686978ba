import threading
from collections.abc import Callable, Iterator

import pytest

from samecommit.demo.stub import Server, Service


class Running:
    """Servers in threads of the test's own process, closed at its end."""

    def __init__(self) -> None:
        self._servers: list[Server] = []
        self._closers: list[Callable[[], None]] = []

    def __call__(self, service: Service) -> str:
        server = Server(service)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self._servers.append(server)
        return server.url

    def on_close(self, closer: Callable[[], None]) -> None:
        self._closers.append(closer)

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for closer in self._closers:
            closer()


@pytest.fixture
def serving() -> Iterator[Running]:
    running = Running()
    yield running
    running.close()
