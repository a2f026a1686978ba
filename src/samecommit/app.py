"""The composition root: an application's tasks, where its jobs are stored, and what works on them.

`Tasks` is a registry without a database, for libraries; `App` adds the database. Making either does no I/O.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import msgspec

from samecommit.config import WorkerConfig
from samecommit.context import AsyncContext, Context
from samecommit.definition import Executor, TaskDefinition, define, where
from samecommit.errors import ConfigError, TaskDefinitionError
from samecommit.job import Enqueued, EnqueuedMany, NewJob
from samecommit.outbox.verbs import OutboxVerbs
from samecommit.retry import RetryPolicy
from samecommit.signals import Signals
from samecommit.storage.connections import AsyncConn, SyncConn, door_for, perform
from samecommit.storage.enqueue_many import enqueue_many
from samecommit.storage.query import check_schema, statement
from samecommit.task import Task

if TYPE_CHECKING:
    from samecommit.embedded import EmbeddedServer
    from samecommit.outbox.destination import Destination
    from samecommit.outbox.relays import Outbox
    from samecommit.runtime.service import Companion
    from samecommit.storage.alone import End
    from samecommit.storage.migrate import Migration
    from samecommit.storage.operate_outbox import OutboxOperator
    from samecommit.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """What ``task(...)`` returns: the four kinds of functions that can be tasks. The order decides."""

    @overload
    def __call__(self, fn: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class Tasks(OutboxVerbs):
    """Tasks, event types and destinations without a database. Give it to an `App`: ``App(tasks=[billing.tasks])``."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[str, Task[..., Any]] = {}
        self._by_kind: dict[str, Task[..., Any]] = {}
        self._parent: Tasks | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {sorted(self._tasks)}>"

    @property
    def definitions(self) -> dict[str, TaskDefinition]:
        """The definitions by kind, aliases included."""
        return {kind: task.definition for kind, task in self._by_kind.items()}

    def _schema_name(self) -> str:
        if self._parent is None:
            msg = "these tasks belong to no application yet: make one with App(tasks=[...]) before enqueueing"
            raise ConfigError(msg)
        return self._parent._schema_name()  # noqa: SLF001 - the same class

    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        backoff: RetryPolicy | None = None,
        permanent: Iterable[type[BaseException]] = (),
        aliases: Iterable[str] = (),
        version: int = 1,
        executor: Executor | None = None,
    ) -> TaskDecorator:
        """Declare a task.

        Args:
            name: the job's kind; the function's name when not given.
            queue: where its jobs wait.
            priority: -100 to 100, higher first.
            max_attempts: None is the queue's default (20).
            timeout: the longest attempt, seconds or timedelta; None is the worker's default (1 h).
            backoff: a `Backoff`, or a function from attempts to seconds; None is the worker's default.
            permanent: exception classes that fail the job at once.
            aliases: earlier names, under which jobs may still wait.
            version: of the payload.
            executor: "process" runs it in a child process, which a timeout or a cancel kills and whose end harms nothing else.

        Raises:
            TaskDefinitionError: the function cannot be a task, or its name is taken; names file and line.
        """

        def decorate(fn: Callable[..., Any]) -> Task[..., Any]:
            definition = define(
                fn,
                name=name,
                queue=queue,
                priority=priority,
                max_attempts=max_attempts,
                timeout=timeout,
                backoff=backoff,
                permanent=permanent,
                aliases=aliases,
                version=version,
                executor=executor,
            )
            task: Task[..., Any] = Task(definition, self._schema_name)
            self._add(task)
            return task

        return decorate  # type: ignore[return-value]

    def _add(self, task: Task[..., Any]) -> None:
        for kind in task.definition.kinds:
            if (other := self._by_kind.get(kind)) is not None:
                msg = (
                    f"two tasks are named {kind!r}: {where(other.definition.fn)} and {where(task.definition.fn)}; "
                    "give one of them name=..."
                )
                raise TaskDefinitionError(msg)
        self._tasks[task.definition.name] = task
        self._by_kind.update(dict.fromkeys(task.definition.kinds, task))

    def include(self, other: Tasks) -> None:
        """Take up the tasks, event types and destinations of a registry.

        Raises:
            TaskDefinitionError, ConfigError: a name is taken.
        """
        self._include_outbox(other)
        other._parent = self
        for task in other._tasks.values():
            self._add(task)


class App(Tasks):
    """An application: its tasks and its database.

    Args:
        dsn: a libpq URI or key=value string; None is ``SAMECOMMIT_DSN``, else what libpq takes from PG* variables.
        schema: where it is installed; any name.
        tasks: registries to include.
        imports: modules to import before a worker starts, so that their tasks are declared.
        worker: settings of its workers.
        source: who tells its events, a URI reference (CloudEvents' ``source``).
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = "samecommit",
        tasks: Iterable[Tasks] = (),
        imports: Iterable[str] = (),
        worker: WorkerConfig | None = None,
        source: str = "samecommit",
    ) -> None:
        super().__init__()
        self.source = source
        self._dsn = dsn
        self.schema = check_schema(schema)
        self.signals = Signals()
        self.worker_config = worker or WorkerConfig()
        self._imports = tuple(imports)
        self.home: str | None = None  # where child processes find it, if it is no attribute of a module
        self._server: EmbeddedServer | None = None
        for registry in tasks:
            self.include(registry)

    @classmethod
    def embedded(cls, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> App:
        """Return an application on a PostgreSQL of its own, started and migrated: for demos, tests and first steps.

        Args:
            data_dir: where its data live; None is a temporary directory that goes with its last user.
            options: as for `App`.

        Raises:
            EmbeddedError: no PostgreSQL is found, or it does not start.
        """
        from samecommit.embedded import EmbeddedServer

        server = EmbeddedServer(None if data_dir is None else os.fspath(data_dir)).start()
        app = cls(server.dsn, **options)
        app._server = server
        app.migrate()
        return app

    @property
    def dsn(self) -> str:
        """Where the database is."""
        return self._dsn if self._dsn is not None else os.environ.get("SAMECOMMIT_DSN", "")

    @dsn.setter
    def dsn(self, dsn: str) -> None:
        self._dsn = dsn

    @property
    def server(self) -> EmbeddedServer | None:
        """The embedded server, if there is one."""
        return self._server

    def close(self) -> None:
        """Stop the embedded server, if this application is its last user."""
        if self._server is not None:
            self._server.stop()

    def _schema_name(self) -> str:
        return self.schema

    def migrate(self) -> list[Migration]:
        """Install or upgrade the schema, make the queues of the declared tasks, and return what was applied.

        Safe to repeat.

        Raises:
            SchemaTooNew: a newer version of the package has migrated it.
        """
        return self.migrate_at(self.dsn)

    def migrate_at(self, dsn: str) -> list[Migration]:
        """Do as `migrate` on another database, such as a framework's test database.

        Raises:
            SchemaTooNew: a newer version of the package has migrated it.
        """
        from samecommit.storage.migrate import migrate

        applied = migrate(dsn, self.schema)
        self._make_queues(dsn)
        return applied

    def _make_queues(self, dsn: str) -> None:
        """Make the queues, so that a producer that is there before the first worker can enqueue."""
        import psycopg

        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
            for name in sorted({task.definition.queue for task in self._tasks.values()}):
                values = {"name": name, "retention": None, "max_attempts": None}
                door_for(conn)[0].fetch(conn, statement("queue/create", self.schema), values)

    @overload
    def enqueue_many(
        self,
        conn: AsyncConn,
        jobs: Iterable[NewJob[R]] | AsyncIterable[NewJob[R]],
        /,
        *,
        progress: Callable[[int], None] | None = None,
        own_transaction: bool = False,
    ) -> Coroutine[Any, Any, EnqueuedMany[R]]: ...
    @overload
    def enqueue_many(
        self,
        conn: SyncConn,
        jobs: Iterable[NewJob[R]],
        /,
        *,
        progress: Callable[[int], None] | None = None,
        own_transaction: bool = False,
    ) -> EnqueuedMany[R]: ...
    def enqueue_many(
        self,
        conn: Any,
        jobs: Any,
        /,
        *,
        progress: Callable[[int], None] | None = None,
        own_transaction: bool = False,
    ) -> Any:
        """Store any number of jobs in the connection's open transaction, all of them or none.

        The jobs are taken from the iterable a chunk at a time, so that a generator of a million needs the memory of a few
        thousand. It is done when the call returns: with what became of each job, in order.

        Example: ``app.enqueue_many(conn, (enrich.job(lead_id=n) for n in ids), progress=print)``.

        Args:
            conn: as for `Task.enqueue`.
            jobs: made by ``task.job(...)``, of one task or several; on an asynchronous connection also an async iterable.
            progress: called after each chunk with how many are stored so far.
            own_transaction: a connection that commits by itself will do; the jobs are then one transaction.

        Raises:
            PayloadError: a job's arguments cannot be stored; ``index`` says which job's. No error of this call leaves a
                job behind or spoils the caller's transaction.
            UnknownQueue, UniqueConflict, NotInTransaction, UnsupportedConnection: as for `Task.enqueue`.
        """
        if hasattr(jobs, "__aiter__") and not door_for(conn)[1]:
            msg = f"{jobs!r} is asynchronous and the connection is not: give a plain iterable, or an asynchronous connection"
            raise TypeError(msg)
        return perform(conn, enqueue_many(jobs, self.schema, progress=progress, own_transaction=own_transaction))

    def enqueue(self, job: NewJob[R], /) -> Enqueued[R]:
        """Store one job in a transaction of its own, on a connection of its own: for scripts with no other data to write.

        Example: ``app.enqueue(enrich.job(lead_id=42))``.

        Raises:
            CommitUnknown: the connection was lost before the database answered; nothing is tried again.
        """
        from samecommit.storage import alone

        return alone.store(self.dsn, self.schema, job)

    async def enqueue_async(self, job: NewJob[R], /) -> Enqueued[R]:
        """Store one job in a transaction of its own; as `enqueue`."""
        from samecommit.storage import alone

        return await alone.store_async(self.dsn, self.schema, job)

    @overload
    def result(self, job: Enqueued[R], /, *, timeout: float = 60.0) -> R: ...
    @overload
    def result(self, job: int, /, *, timeout: float = 60.0) -> Any: ...
    def result(self, job: Enqueued[Any] | int, /, *, timeout: float = 60.0) -> Any:
        """Wait until a job has ended and return what its function returned, as the type that it declares.

        Looks again and again, with pauses from 5 ms to half a second, on a connection of its own. Commit first: what is
        not committed is not found.

        Args:
            job: what an enqueue returned, or the job's id.
            timeout: seconds.

        Raises:
            JobError: the job failed or was cancelled; ``reason`` says why.
            UnknownJob: nothing of that id is stored (any more).
            TimeoutError: it has not ended in time; it goes on.
            PayloadMismatch: the stored result does not fit what the function declares now.
        """
        from samecommit.storage import alone

        return self._read(alone.wait_for(self.dsn, self.schema, _id_of(job), timeout))

    @overload
    async def result_async(self, job: Enqueued[R], /, *, timeout: float = 60.0) -> R: ...
    @overload
    async def result_async(self, job: int, /, *, timeout: float = 60.0) -> Any: ...
    async def result_async(self, job: Enqueued[Any] | int, /, *, timeout: float = 60.0) -> Any:
        """Wait until a job has ended and return what its function returned; as `result`."""
        from samecommit.storage import alone

        return self._read(await alone.wait_for_async(self.dsn, self.schema, _id_of(job), timeout))

    def _read(self, end: End) -> Any:
        if end.result is None:
            return None
        task = self._by_kind.get(end.kind)
        codec = task.definition.result_codec if task is not None else None
        return codec.decode(end.result) if codec is not None else msgspec.json.decode(end.result)

    def worker(self, config: WorkerConfig | None = None, *, relay: bool = True) -> Worker:
        """Return a worker for this application's tasks; ``await worker.run()`` works until ``worker.stop()``.

        Args:
            config: in place of the application's settings.
            relay: carry events to their destinations, too; False when `relay` runs in processes of its own.

        Raises:
            ConfigError: neither tasks nor destinations are declared.
        """
        self._import()
        outbox = self._make_outbox(config, self._outbox.destinations, is_relaying=relay)
        tasks = {**self.definitions, **outbox.tasks()}
        if not tasks and not (relay and self._outbox.destinations):
            msg = "this application has no tasks, so a worker would do nothing: declare some, or name their modules in imports="
            raise ConfigError(msg)
        from samecommit import __version__
        from samecommit.maintenance.chores import Chores
        from samecommit.worker.origin import Origin, place_of
        from samecommit.worker.worker import Worker

        settings = config or self.worker_config
        companions: list[Companion] = []
        if settings.chores:
            companions.append(Chores(self.dsn, self.schema, settings, self.signals))
        if self._outbox.destinations:
            companions.append(outbox)
        origin = Origin(self.home or place_of(self), self._imports)
        return Worker(self.dsn, self.schema, tasks, settings, self.signals, __version__, companions, origin)

    def relay(self, config: WorkerConfig | None = None, *, only: Iterable[str] | None = None) -> Outbox:
        """Return the relay of this application's events alone; ``await relay.run()`` works until ``relay.stop()``.

        Jobs that it makes for job destinations are run by workers.

        Args:
            config: in place of the application's settings.
            only: the names of the destinations to relay to; None is all of them.

        Raises:
            ConfigError: no destination is declared, or none of a name in ``only``.
        """
        self._import()
        return self._make_outbox(config, self._outbox.chosen(only))

    def destinations(self) -> tuple[Destination, ...]:
        """Return where this application's events go."""
        self._import()
        return self._outbox.destinations

    def outbox(self) -> OutboxOperator:
        """Return what an operator can ask and do about the outbox, on a connection of its own.

        Example: ``with app.outbox() as outbox: outbox.replay("crm", EventFilter(keys=["42"]))``.

        Raises:
            SchemaError: the schema is missing or does not fit this code.
        """
        from samecommit.storage.operate_outbox import OutboxOperator

        return OutboxOperator.connect(self.dsn, self.schema)

    def _make_outbox(
        self, config: WorkerConfig | None, destinations: Sequence[Destination], *, is_relaying: bool = True
    ) -> Outbox:
        from samecommit.outbox.relays import Outbox

        doorbell = (config or self.worker_config).doorbell
        return Outbox(self.dsn, self.schema, destinations, self.signals, is_relaying=is_relaying, doorbell=doorbell)

    def _import(self) -> None:
        for name in self._imports:
            import_module(name)


def _id_of(job: Enqueued[Any] | int) -> int:
    return job if isinstance(job, int) else job.id
