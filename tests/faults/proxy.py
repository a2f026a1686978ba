"""A TCP proxy before the server's socket that knows who speaks, and when they commit; it cuts, swallows and goes silent.

It runs on an event loop in a thread of its own and needs no rights. A connection is known by the ``application_name`` of its
startup packet.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Pair:
    """One connection through the proxy."""

    def __init__(self, app: str) -> None:
        self.app = app
        self.is_silent = False
        self.writers: list[asyncio.StreamWriter] = []

    def __repr__(self) -> str:
        return f"<Pair {self.app!r}>"

    def cut(self) -> None:
        """Reset both sides."""
        for writer in self.writers:
            writer.transport.abort()


class Proxy:
    """Passes bytes until told otherwise.

    Attributes:
        before: called with (pair, bytes of the client) before they are passed; True cuts instead.
        after: the same when the server's answer to them is about to be passed; True drops it and cuts.
        delay_seconds: how long each packet of a client takes; ``delayed`` counts those that took longer.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.pairs: list[Pair] = []
        self.port = 0
        self.before: Callable[[Pair, bytes], bool] = lambda pair, data: False
        self.after: Callable[[Pair, bytes], bool] = lambda pair, data: False
        self.accepted = 0
        self.delay_seconds = 0.0
        self.delayed = 0

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        """Cut everything and end."""
        self.cut()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self, app: str = "") -> int:
        """Reset the connections of that name, all when none is given; how many."""
        hit = [pair for pair in self.pairs if app in pair.app]
        for pair in hit:
            self._loop.call_soon_threadsafe(pair.cut)
        return len(hit)

    def reset(self, pair: Pair) -> None:
        """Reset one connection."""
        self._loop.call_soon_threadsafe(pair.cut)

    def silence(self, app: str = "") -> int:
        """Pass nothing any more on the connections that are there, and leave them open; how many."""
        hit = [pair for pair in self.pairs if app in pair.app]
        for pair in hit:
            pair.is_silent = True
        return len(hit)

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _close(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        pair = Pair("")
        pair.writers = [writer]
        try:
            first = await _startup(reader, writer)
            pair.app = _app_of(first)
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._socket))
            pair.writers.append(up_writer)
            self.pairs.append(pair)
            up_writer.write(first)
            asked: list[bytes] = [b""]
            await asyncio.gather(
                self._upwards(pair, reader, up_writer, asked), self._downwards(pair, up_reader, writer, asked)
            )
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cut, or at its end
        finally:
            pair.cut()
            if pair in self.pairs:
                self.pairs.remove(pair)

    async def _upwards(
        self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[bytes]
    ) -> None:
        while data := await reader.read(65536):
            if pair.is_silent:
                continue
            if self.delay_seconds:
                self.delayed += 1
                await asyncio.sleep(self.delay_seconds)
            if self.before(pair, data):
                raise ConnectionError
            asked[0] = data
            writer.write(data)
            await writer.drain()
        raise ConnectionError

    async def _downwards(
        self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[bytes]
    ) -> None:
        while data := await reader.read(65536):
            if pair.is_silent:
                continue
            if self.after(pair, asked[0]):
                raise ConnectionError
            writer.write(data)
            await writer.drain()
        raise ConnectionError


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read the startup packet; requests for encryption are answered with no."""
    while True:
        head = await reader.readexactly(8)
        length, code = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if code in {80877103, 80877104}:
            writer.write(b"N")
            continue
        return head + await reader.readexactly(length - 8)


def _app_of(packet: bytes) -> str:
    words = packet[8:].split(b"\0")
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return pairs.get(b"application_name", b"").decode()


@contextmanager
def proxy(dsn: str) -> Iterator[tuple[Proxy, str]]:
    """Put a proxy before a server that listens on a socket: the proxy, and the DSN that goes through it."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    made = Proxy(Path(query["host"][0], f".s.PGSQL.{query['port'][0]}"))
    made.start()
    try:
        yield (
            made,
            f"postgresql://{parts.netloc}127.0.0.1:{made.port}{parts.path}?sslmode=disable&gssencmode=disable",
        )
    finally:
        made.stop()
