"""Child processes that do one thing at a time and can be killed at any moment. Spawned, never forked; POSIX only.

::

    parent ── one socket, the child's standard input ── child
              hello >            < "" when ready, else why not
              request >          < any number of notes, then one answer
              STOP >             ends by itself, soon

A frame is four bytes of length and so many bytes; what they mean is the callers' business. The end of a child is seen
as the end of its socket, which the kernel closes. Each child leads a process group, so that what a handler started dies
with it, and the group is killed before the child is waited for, so that its number cannot be anybody else's by then.

A child is used again when it answered in time. One that was interrupted, died, has done enough or has grown too large
is told to stop, and killed when it does not.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import struct
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from samecommit.errors import ChildDied

T = TypeVar("T")
STOP = b"stop"
LENGTH = struct.Struct(">I")
_MOST_BYTES = 64 * 1024 * 1024
_START_SECONDS = 60.0
_GRACE_SECONDS = 2.0
_REAP_SECONDS = 5.0


def frame(data: bytes) -> bytes:
    """Return data as it is sent."""
    return LENGTH.pack(len(data)) + data


class Child:
    """A process and the socket to it; one user at a time."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process, self._reader, self._writer = process, reader, writer
        self.jobs = 0

    def __repr__(self) -> str:
        return f"<Child {self.process.pid} {self.jobs} jobs>"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its end of the socket is open, as far as is known."""
        return not self._reader.at_eof()

    @property
    def memory_mb(self) -> float:
        """What it holds in memory now; 0 where the system does not tell."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1])
        except (OSError, ValueError, IndexError):
            return 0.0
        return pages * resource.getpagesize() / 1e6

    async def run(self, request: bytes, hear: Callable[[bytes], T | None]) -> T:
        """Send a request and return the first frame that ``hear`` makes an answer of; None was a note.

        Raises:
            ChildDied: the socket has ended instead.
        """
        self.jobs += 1
        await self._send(request)
        while (answer := hear(await self.receive())) is None:
            pass
        return answer

    async def _send(self, data: bytes) -> None:
        try:
            self._writer.write(frame(data))
            await self._writer.drain()
        except ConnectionError:
            pass  # the next read tells

    async def receive(self) -> bytes:
        """Return the next frame.

        Raises:
            ChildDied: there is none.
        """
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if length <= _MOST_BYTES:
                return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        raise ChildDied(f"its child process {_how(await self._reaped())}")

    async def end(self) -> None:
        """Let it end by itself, and kill it and what it started after a grace; when cancelled, at once."""
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._send(STOP)
                while await self._reader.read(65536):
                    pass
        except (TimeoutError, ConnectionError):
            pass
        finally:
            await self._reaped()

    async def _reaped(self) -> int | None:
        """Kill what is left of it and return its status, None if it cannot be had."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._writer.close()
        pause, left = 0.001, _REAP_SECONDS
        while self.process.poll() is None and left > 0:  # a few milliseconds, unless the kernel holds it
            await asyncio.sleep(pause)
            left -= pause
            pause = min(pause * 2, 0.1)
        return self.process.returncode


def _how(status: int | None) -> str:
    """Say how a process ended."""
    match status:
        case None:
            return "was killed and is still there"
        case 0:
            return "ended by itself, with status 0"
        case _ if status > 0:
            return f"ended by itself, with status {status}"
        case -9:
            return "was killed by SIGKILL: by the system for want of memory, or by somebody"
        case _:
            try:
                return f"was killed by {signal.Signals(-status).name}"
            except ValueError:
                return f"was killed by signal {-status}"


class Children:
    """At most ``size`` children, started when they are needed and kept.

    Args:
        command: starts one.
        hello: what each is told first.
        max_jobs: after so many a child is replaced; None is never.
        max_memory_mb: a child that holds more after a job is replaced; None is never.
    """

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        hello: Callable[[], bytes],
        *,
        max_jobs: int | None = None,
        max_memory_mb: float | None = None,
    ) -> None:
        self._command, self._hello, self.size = command, hello, size
        self._max_jobs, self._max_memory_mb = max_jobs, max_memory_mb
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Child] = []
        self._ending: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Children {len(self._idle)} idle of {self.size}, {len(self._ending)} ending>"

    @asynccontextmanager
    async def borrow(self) -> AsyncGenerator[Child]:
        """Lend a child, when one is free. If the block does not end well the child is ended before the block is left.

        Raises:
            ChildDied: none could be started.
        """
        async with self._slots:
            child = await self._take()
            try:
                yield child
            except BaseException:
                await child.end()
                raise
            if self._is_worn(child):
                self._end_later(child)
            else:
                self._idle.append(child)

    async def _take(self) -> Child:
        while self._idle:
            if (child := self._idle.pop()).is_alive:
                return child
            self._end_later(child)  # it died between two jobs
        return await self._start()

    async def _start(self) -> Child:
        near, far = socket.socketpair()
        with far:
            try:
                process = subprocess.Popen(self._command, stdin=far.fileno(), start_new_session=True)  # noqa: ASYNC220, S603 - a few ms; our own command
            except OSError as error:
                near.close()
                raise ChildDied(f"no child process could be started: {error}", is_begun=False) from error
        child = Child(process, *await asyncio.open_connection(sock=near))
        try:
            async with asyncio.timeout(_START_SECONDS):
                refusal = await child.run(self._hello(), lambda data: data.decode())
        except ChildDied as error:
            raise ChildDied(f"while it started, {error}", is_begun=False) from error
        except TimeoutError as error:
            await child.end()
            raise ChildDied(f"its child process was not ready after {_START_SECONDS:g} s", is_begun=False) from error
        except BaseException:
            await child.end()
            raise
        if refusal:
            await child.end()
            raise ChildDied(f"its child process could not import the application: {refusal}", is_begun=False)
        child.jobs = 0
        return child

    def _is_worn(self, child: Child) -> bool:
        if self._max_jobs is not None and child.jobs >= self._max_jobs:
            return True
        return self._max_memory_mb is not None and child.memory_mb > self._max_memory_mb

    def _end_later(self, child: Child) -> None:
        task = asyncio.create_task(child.end(), name=f"samecommit end of child {child.pid}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End the idle ones, and wait for all that are ending."""
        while self._idle:
            self._end_later(self._idle.pop())
        if self._ending:
            await asyncio.wait(self._ending)
