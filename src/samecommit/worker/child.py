"""A child process of a worker: imports the application, then runs one job after the other, as told on its socket.

::

    main thread    request ─> handler ─> verdict ─> answer
    reader thread  socket ─> requests; "stop" ─> SystemExit in the main thread; end of the socket ─> kill this group

The socket ends when the worker is gone, and then nothing here may go on; on Linux the kernel kills this process too. A
handler is stopped by SystemExit, so that its ``finally`` blocks run. SIGTERM alone does nothing: a service manager sends
it to every process of a service, and the worker decides what becomes of its jobs.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import faulthandler
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import psycopg

from samecommit.context import AsyncContext, Context
from samecommit.definition import TaskDefinition
from samecommit.errors import AppNotFound
from samecommit.runtime.children import LENGTH, STOP, frame
from samecommit.runtime.forks import let_forks_go
from samecommit.storage.session import as_writer
from samecommit.worker.attempt import Attempt
from samecommit.worker.frameworks import between_jobs
from samecommit.worker.supervisor import take_input
from samecommit.worker.verdict import NO_PAYLOAD, Drop, End, Settle, judge_error, judge_value
from samecommit.worker.wire import Ended, Hello, Request, Told, encode, hello_decoder, request_decoder

_PR_SET_PDEATHSIG = 1
_TELL_SECONDS = 0.2
_FIRST_TO_GO = "500"  # of -1000 to 1000: out of memory, the kernel takes a child before its worker


class Channel:
    """The socket to the worker, taken from standard input so that no handler reads it."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=take_input())
        self._lock = threading.Lock()

    def read(self) -> bytes | None:
        """Return the next frame, None at the end."""
        head = self._read_exactly(LENGTH.size)
        return None if head is None else self._read_exactly(LENGTH.unpack(head)[0])

    def _read_exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                part = self._socket.recv(count - len(data))
            except OSError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    def write(self, data: bytes) -> None:
        """Send a frame; from any thread."""
        with self._lock:
            self._socket.sendall(frame(data))

    def close(self) -> None:
        """Close this process's descriptor of the socket, and no other process's."""
        self._socket.close()


class Child:
    """Runs jobs; the host of their attempts."""

    def __init__(self, hello: Hello, tasks: dict[str, TaskDefinition], channel: Channel) -> None:
        self.installation, self.schema, self.lease_id = hello.installation, hello.schema, 0
        self._hello, self._tasks, self._channel = hello, tasks, channel
        self._runner: asyncio.Runner | None = None
        self._attempt: Attempt | None = None
        self._teller: threading.Timer | None = None
        self._teller_lock = threading.Lock()

    def run(self, request: Request) -> Ended:
        """Run one job and judge its end."""
        job = request.job
        self.lease_id = request.lease_id
        task = self._tasks.get(job.kind)
        if task is None:
            why = f"AppNotFound: the application of the child process has no task {job.kind!r}: restart the worker"
            return Ended(None, Settle("error", delay_seconds=60.0, error=why), None, is_ended_by_handler=False)
        if job.payload_json is None:  # the worker holds these itself; with no arguments it would do something else
            return Ended(None, NO_PAYLOAD, None, is_ended_by_handler=False)
        attempt = Attempt(msgspec.structs.astuple(job), request.claim_id, task, self)
        attempt.job = job
        self._attempt = attempt
        try:
            verdict = judge_value(self._call(attempt, job.payload_json), job, task, self._hello.fallback)
        except BaseException as error:
            if stop.is_told:
                raise
            verdict = judge_error(error, job, task, self._hello.fallback)
        self._forget_teller()
        match verdict:
            case End():
                return Ended(verdict, None, attempt.record_json, attempt.is_ended_by_handler)
            case Settle():
                return Ended(None, verdict, attempt.record_json, attempt.is_ended_by_handler)
            case Drop():
                return Ended(None, None, None, attempt.is_ended_by_handler)

    def _call(self, attempt: Attempt, payload: str) -> Any:
        task, job = attempt.definition, attempt.job
        kwargs = task.codec.decode(payload)
        within = contextvars.copy_context()  # what one job sets there, the next does not see
        if not task.is_async:
            with between_jobs():
                return within.run(task.fn, *(() if task.context == "none" else (Context(job, attempt),)), **kwargs)
        if self._runner is None:
            self._runner = asyncio.Runner()  # one for all jobs: what a module keeps between them belongs to its loop
        running = task.fn(*(() if task.context == "none" else (AsyncContext(job, attempt),)), **kwargs)
        return self._runner.run(running, context=within)

    def close(self) -> None:
        """Let a coroutine that was stopped clean up."""
        if self._runner is not None:
            self._runner.close()

    def mark_dirty(self, attempt: Attempt) -> None:
        """Tell the worker soon what is recorded: at most five times a second, and nothing of a job that has ended."""
        with self._teller_lock:
            if self._teller is None and attempt is self._attempt:
                self._teller = threading.Timer(_TELL_SECONDS, self._tell, args=(attempt,))
                self._teller.daemon = True
                self._teller.start()

    def _tell(self, attempt: Attempt) -> None:
        with self._teller_lock:
            if attempt is self._attempt:
                self._teller = None
                self._channel.write(encode(Told(attempt.record_json, attempt.progress_json)))

    def _forget_teller(self) -> None:
        with self._teller_lock:
            teller, self._teller, self._attempt = self._teller, None, None
        if teller is not None:
            teller.cancel()

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "autocommit": True,
            "application_name": "samecommit handler",
            "prepare_threshold": None,
            **as_writer(self._hello.dsn),
        }

    @contextmanager
    def sync_connection(self) -> Generator[Any]:
        """Lend a plain connection of its own."""
        with psycopg.connect(self._hello.dsn, **self._options) as conn:
            yield conn

    @asynccontextmanager
    async def async_connection(self) -> AsyncGenerator[Any]:
        """Lend an async connection of its own."""
        async with await psycopg.AsyncConnection.connect(self._hello.dsn, **self._options) as conn:
            yield conn


class Stop:
    """Whether this process was told to stop; SIGTERM raises SystemExit in the main thread then, and does nothing before."""

    def __init__(self) -> None:
        self.is_told = False

    def install(self) -> None:
        """Take over the signal; a handler of ours, since what is ignored stays ignored in programs that a job starts."""
        signal.signal(signal.SIGTERM, self._heard)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_told:
            raise SystemExit(0)

    def tell(self) -> None:
        """Stop; from any thread."""
        self.is_told = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


stop = Stop()


def main() -> None:
    """Run until told to stop."""
    channel = Channel()
    _die_with_parent()
    faulthandler.enable()
    stop.install()
    let_forks_go([signal.SIGTERM], channel.close)  # held open there, it would hide this process's death from the worker
    first = channel.read()
    if first is None:
        return
    hello = hello_decoder.decode(first)
    try:
        tasks = load(hello)
    except Exception as error:  # noqa: BLE001 - whatever its import raises is the answer
        channel.write(f"{type(error).__name__}: {error}".encode(errors="replace"))
        return
    channel.write(b"")
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(channel, requests), name="samecommit reader", daemon=True).start()
    _serve(Child(hello, tasks, channel), channel, requests)


def load(hello: Hello) -> dict[str, TaskDefinition]:
    """Import the application and return its tasks by kind.

    Raises:
        AppNotFound: it is not where it is said to be.
    """
    sys.path[:] = hello.path
    module, _, name = hello.home.partition(":")
    try:
        found: Any = attrgetter(name)(import_module(module))
    except AttributeError as error:
        raise AppNotFound(f"{hello.home!r} names nothing in a child process: {error}") from error
    app = found if hasattr(found, "definitions") else found()
    for each in hello.imports:
        import_module(each)
    tasks: dict[str, TaskDefinition] = app.definitions
    return tasks


def _serve(child: Child, channel: Channel, requests: queue.SimpleQueue[Request]) -> None:
    make_record = logging.getLogRecordFactory()
    current: list[Request] = []

    def with_job(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        record.job_id, record.job_kind = (current[-1].job.id, current[-1].job.kind) if current else (None, None)
        return record

    logging.setLogRecordFactory(with_job)
    try:
        while not stop.is_told:
            current[:] = [requests.get()]
            ended = child.run(current[-1])
            current.clear()
            channel.write(encode(ended))
    finally:
        child.close()


def _read(channel: Channel, requests: queue.SimpleQueue[Request]) -> None:
    while (data := channel.read()) is not None:
        if data == STOP:
            stop.tell()
        else:
            requests.put(request_decoder.decode(data))
    os.killpg(0, signal.SIGKILL)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
        except OSError:
            pass  # a container may forbid it


if __name__ == "__main__":
    main()
