"""A TCP proxy before a broker: refuses, cuts in the middle of what is sent, swallows answers, is slow."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """Passes bytes to a port of this machine until told otherwise. Lives in the loop of one test.

    Attributes:
        refuses: connections are reset when they come.
        delay: seconds that each answer takes longer.
        lose_answer: what follows the next bytes that hold this is passed to the server; its answer is not, and both sides
            are reset once it comes: the server took it and the client does not know.
        cut_in: the next bytes that hold this are passed up to it, then both sides are reset.
    """

    target: int
    refuses: bool = False
    delay: float = 0.0
    lose_answer: bytes | None = None
    cut_in: bytes | None = None
    port: int = 0
    fired: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _ends: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.refuses = True
        for _ in range(5):  # a connection that has just been accepted is told of a turn or two of the loop later
            await asyncio.sleep(0)
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in self._ends:  # a reset takes another turn of the loop, and the loop ends with the test
            end.transport.abort()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await end.wait_closed()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        """Pass everything again."""
        self.refuses, self.delay, self.lose_answer, self.cut_in = False, 0.0, None, None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.append(writer)  # before a task runs, which may never do so
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            if self.refuses:
                return
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
            ends.append(up_writer)
            self._ends.append(up_writer)
            self._writers.update(ends)
            is_deaf = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(reader, up_writer, is_deaf))
                group.create_task(self._down(up_reader, writer, is_deaf))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                self._writers.discard(end)
                end.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_deaf: asyncio.Event) -> None:
        while data := await reader.read(262_144):
            if self.cut_in is not None and self.cut_in in data:
                writer.write(data[: data.index(self.cut_in)])
                await writer.drain()
                writer.close()
                self.cut_in, self.fired = None, self.fired + 1
                raise ConnectionResetError
            if self.lose_answer is not None and self.lose_answer in data:
                self.lose_answer, self.fired = None, self.fired + 1
                is_deaf.set()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_deaf: asyncio.Event) -> None:
        while data := await reader.read(262_144):
            if is_deaf.is_set():
                raise ConnectionResetError
            if self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
