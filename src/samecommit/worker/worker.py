"""A worker process, put together: what it is made of, how it starts, loses its lease, and stops.

::

    heartbeat thread ── lease ──┐
    listener ─ bell ─ claimer ──┴─> executor ──> completer
    companions: chores (any worker does them), the outbox

Each has its own connection: six at most. Losing the lease stops everything and begins anew with another lease.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from samecommit import clock
from samecommit.config import WorkerConfig
from samecommit.definition import TaskDefinition
from samecommit.errors import ConfigError
from samecommit.runtime.doorbell import Doorbell
from samecommit.runtime.listener import Listener
from samecommit.runtime.reach import reach
from samecommit.runtime.service import Companion, Service
from samecommit.signals import LeaseWasLost, Signals, WorkerStarted, WorkerStopped, WorkerWornOut
from samecommit.storage.link import AsyncLink
from samecommit.storage.session import as_writer
from samecommit.worker.attempt import Attempt
from samecommit.worker.claimer import Claimer
from samecommit.worker.completer import Completer
from samecommit.worker.executor import Executor
from samecommit.worker.heartbeat import Heartbeat
from samecommit.worker.origin import Origin

if TYPE_CHECKING:
    from samecommit.worker.apart import Apart

_LET_GO_SECONDS = 0.05
NOWHERE = Origin()


class Worker:
    """Claims and runs jobs until it is told to stop.

    Args:
        dsn: the database.
        schema: the installation.
        tasks: definitions by kind, aliases included.
        config: settings.
        signals: where it tells what happens.
        version: shown in the worker's row.
        companions: what runs beside it and ends after its last handler: chores, the outbox.
        origin: where child processes find the application, for tasks with ``executor="process"``.

    Raises:
        ConfigError: a task runs in child processes, which could not find the application.
    """

    def __init__(
        self,
        dsn: str,
        schema: str,
        tasks: dict[str, TaskDefinition],
        config: WorkerConfig | None = None,
        signals: Signals | None = None,
        version: str = "0",
        companions: Sequence[Companion] = (),
        origin: Origin = NOWHERE,
    ) -> None:
        self.dsn, self.schema, self.tasks = dsn, schema, tasks
        self.config = config or WorkerConfig()
        self.signals = signals or Signals()
        self.version = version
        self._companions = tuple(companions)
        self._origin = origin
        self.is_worn_out = False
        self._check_origin()
        self.installation = ""
        self.lease_id = 0
        self._lease: int | None = None
        self._stop_asked = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._pool: Any = None
        self._pool_lock = asyncio.Lock()
        self._thread_pool: Any = None
        self._thread_pool_lock = threading.Lock()
        self._links: dict[str, AsyncLink] = {}
        self._has_started = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Worker lease {self._lease} {getattr(self, 'executor', 'not started')}>"

    @property
    def is_pooled(self) -> bool:
        """Whether a transaction pooler stands between this worker and the server."""
        return "finish" in self._links and self._links["finish"].is_pooled

    def stop(self, *, now: bool = False) -> None:
        """Stop after the running handlers have ended or the grace period is over; ``now`` does not wait. Safe to repeat."""
        self._stop_asked.set()
        if now:
            self._stop_now.set()

    async def started(self) -> None:
        """Wait until the first lease is there."""
        await self._has_started.wait()

    async def run(self) -> None:
        """Work until `stop`. A database that is away is waited for.

        Raises:
            SchemaError: the schema is missing or does not fit this version.
            LinkDown: the server does not want us, or was away for ``connect_seconds``.
        """
        self._build()
        link = self._links["finish"]
        try:
            if not await reach(link, self.signals, self._stop_asked, self.config.connect_seconds):
                return await link.close()
            await self._identify()
        except BaseException:
            await link.close()
            raise
        self.heartbeat.start()
        services = self._services
        for service in services.values():
            service.start()
        try:
            for companion in self._companions:
                await companion.start(lambda: self._lease)
            await self._stop_asked.wait()
        finally:
            await self._shut_down(services)

    def _link(self, name: str, *, durable: bool = True, settings: dict[str, str] | None = None) -> AsyncLink:
        self._links[name] = AsyncLink(self.dsn, self.schema, name, durable=durable, settings=settings)
        return self._links[name]

    def _build(self) -> None:
        self._loop = asyncio.get_running_loop()
        kinds = tuple(sorted(self.tasks))
        self.completer = Completer(
            self._link("finish"),
            self.signals,
            lease=lambda: self.lease_id,
            wake=lambda: self._services["completer"].wake(),
            on_cancel=self._cancel,
            on_cool=self._cool,
            running_ids=lambda: self.executor.ids(),
        )
        self.executor = Executor(
            self.config,
            self.tasks,
            self,
            self.completer,
            self.signals,
            on_room=lambda: self._services["claimer"].wake(),
            on_exhausted=self._wear_out,
            apart=self._make_apart(),
            is_overdue=lambda: self.heartbeat.is_overdue,
        )
        self._bell = Doorbell(self._link("bell"), on_grant=lambda: self._services["claimer"].wake())
        self.claimer = Claimer(
            self.config,
            self._link("claim", durable=False),
            self._bell,
            self.executor,
            self.signals,
            kinds=kinds,
            lease=lambda: self._lease,
            claimed=self.completer.claimed,
            known=self.completer.known,
            sleep=asyncio.sleep,
        )
        self.heartbeat = Heartbeat(
            self.dsn,
            self.schema,
            self.config,
            self.signals,
            kinds=kinds,
            version=self.version,
            on_lease=lambda lease, installation: self._tell(self._leased, lease, installation),
            on_lost=lambda lease, why: self._tell(self._lost, lease, why),
            vitals=self._vitals,
            is_pooled=lambda: self.is_pooled,
        )
        turns = {"completer": self.completer.run_once, "claimer": self.claimer.run_once, "look": self._look}
        self._services = {name: Service(name, turn, self.signals) for name, turn in turns.items()}

    def _check_origin(self) -> None:
        apart = sorted(task.name for task in self.tasks.values() if task.executor == "process")
        if apart and self._origin.home is None:
            msg = (
                f"task {apart[0]!r} runs in child processes, which import the application, and it is in no module that "
                "they could import: make it an attribute of a module other than the script that runs"
            )
            raise ConfigError(msg)

    def _make_apart(self) -> Apart | None:
        if all(task.executor != "process" for task in self.tasks.values()):
            return None
        from samecommit.worker.apart import Apart

        return Apart(self.config, self, dsn=self.dsn, origin=self._origin)

    def _tell(self, callback: Any, *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop has ended
            pass

    async def _identify(self) -> None:
        link = self._links["finish"]
        self.installation, number, _ = (await link.fetch("worker/place"))[0]
        queues = self.config.queues if self.config.queues is not None else ()
        for name in sorted({*queues, *(task.queue for task in self.tasks.values())}):
            await link.fetch("queue/create", name=name, retention=None, max_attempts=None)
        if self.config.doorbell and not self.is_pooled:  # a pooler's sessions hear nothing, and would keep the locks
            listener = Listener(self._link("listen"), f"samecommit_{number}", self._heard, self._look_once)
            self._services["listener"] = Service("listener", listener.run_once, self.signals)
            self._services["bell"] = Service("bell", self._bell.run_once, self.signals)

    def _heard(self, message: str) -> None:
        if message == "cancel":
            self.completer.ask_for_cancels()
        elif message == "queues":
            self.claimer.forget_view()
            self._look_once()
        elif not message.isdigit() or int(message) in self._bell.slots:
            if self._bell.is_held:
                self._look_once()
            else:
                self._loop.call_later(random.uniform(0.001, 0.005), self._look_once)

    def _look_once(self) -> None:
        self._services["claimer"].wake()

    async def _look(self) -> float:
        self.heartbeat.loop_moved = clock.monotonic()
        self.heartbeat.look()
        return await self.executor.look()

    def _vitals(self) -> tuple[int, str, str | None, list[tuple[int, Any]]]:
        backends = [link.backend for link in self._links.values() if link.backend is not None]
        state = "stopping" if self._stop_asked.is_set() else "working"
        return len(self.executor.running), state, self.executor.note, backends

    def _wear_out(self) -> None:
        if not self.is_worn_out:
            self.is_worn_out = True
            self.signals.emit(WorkerWornOut(stuck_threads=self.executor.stuck_threads))
            self.stop()

    def _leased(self, lease_id: int, installation: str) -> None:
        self.lease_id = self._lease = lease_id
        self.installation = installation  # a copy that was adopted meanwhile may have got another
        self._has_started.set()
        self.signals.emit(WorkerStarted(lease_id=lease_id, queues=self.config.queues, kinds=tuple(sorted(self.tasks))))
        self._look_once()

    def _lost(self, lease_id: int, reason: str) -> None:
        self._lease = None
        running = self.executor.abort()
        self.completer.drop()
        self.claimer.reset()
        self.signals.emit(LeaseWasLost(lease_id=lease_id, running=running, reason=reason))
        self.heartbeat.resume()

    def _cool(self, kind: str, seconds: float) -> None:
        self.claimer.cool(kind, seconds)
        self.executor.give_back_kind(kind)

    def _cancel(self, job_id: int, reason: str | None) -> None:
        self.executor.cancel(job_id, reason)

    async def _shut_down(self, services: dict[str, Service]) -> None:
        self.claimer.is_stopping = True
        await services["claimer"].stop()
        given_back = await self._drain()
        await self._write_out()
        for companion in self._companions:
            await companion.finish()
        waits = {
            "listener": _LET_GO_SECONDS,
            "bell": _LET_GO_SECONDS,
        }  # they only wait: nothing is lost by cutting it short
        await asyncio.gather(*(service.stop(waits.get(name, 1.0)) for name, service in services.items()))
        await asyncio.to_thread(self.heartbeat.finish)
        for link in self._links.values():
            await link.close()
        if self._pool is not None:
            await self._pool.close(timeout=2.0)
        if self._thread_pool is not None:
            await asyncio.to_thread(self._thread_pool.close, timeout=2.0)
        self.signals.emit(WorkerStopped(lease_id=self.lease_id, given_back=given_back))

    async def _drain(self) -> int:
        if self._stop_now.is_set():
            return await self.executor.drain(0.0)
        drained = asyncio.create_task(self.executor.drain(self.config.grace_seconds))
        hurried = asyncio.create_task(self._stop_now.wait())
        await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not drained.done():
            drained.cancel()
            return await self.executor.drain(0.0)
        return drained.result()

    async def _write_out(self, timeout_seconds: float = 5.0) -> None:
        until = self._loop.time() + timeout_seconds
        self.completer.is_closing = True
        while not self.completer.is_empty and self._loop.time() < until:
            self._services["completer"].wake()
            await asyncio.sleep(0.01)

    def mark_dirty(self, attempt: Attempt) -> None:
        """Note that a running attempt has something to keep (called from any thread)."""
        self._tell(self.completer.mark_dirty, attempt)

    @contextmanager
    def sync_connection(self) -> Generator[Any]:
        """Lend a plain connection to a handler on a thread: a new one for each would cost it 4 ms."""
        with self._thread_pool_lock:
            if self._thread_pool is None:
                from psycopg_pool import ConnectionPool

                self._thread_pool = ConnectionPool(self.dsn, open=True, **self._pool_options(self.config.thread_count))
        with self._thread_pool.connection() as conn:
            yield conn

    @asynccontextmanager
    async def async_connection(self) -> AsyncGenerator[Any]:
        """Lend an async connection to a handler."""
        async with self._pool_lock:
            if self._pool is None:
                from psycopg_pool import AsyncConnectionPool

                self._pool = AsyncConnectionPool(self.dsn, open=False, **self._pool_options(self.config.concurrency))
                await self._pool.open()
        async with self._pool.connection() as conn:
            yield conn

    def _pool_options(self, handlers: int) -> dict[str, Any]:
        return {
            "min_size": 1,
            "max_size": max(2, min(handlers, self.config.handler_connections)),
            "timeout": 30.0,
            "kwargs": {
                "autocommit": True,
                "application_name": "samecommit handler",
                **as_writer(self.dsn),
                **({"prepare_threshold": None} if self.is_pooled else {}),
            },
        }
