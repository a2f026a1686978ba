"""The composition root: an application's tasks, where its jobs are stored, and what works on them.

`Tasks` is a registry without a database, for libraries; `App` adds the database. Making either does no I/O.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from samecommit.config import WorkerConfig
from samecommit.context import AsyncContext, Context
from samecommit.definition import TaskDefinition, define, where
from samecommit.errors import ConfigError, TaskDefinitionError
from samecommit.job import Enqueued
from samecommit.retry import RetryPolicy
from samecommit.signals import Signals
from samecommit.storage.connections import door_for
from samecommit.storage.query import check_schema, statement
from samecommit.task import NewJob, Task, store

if TYPE_CHECKING:
    from samecommit.embedded import EmbeddedServer
    from samecommit.storage.migrate import Migration
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


class Tasks:
    """Tasks without a database. Give it to an `App`: ``App(tasks=[billing.tasks])``."""

    def __init__(self) -> None:
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
        """Take up the tasks of a registry.

        Raises:
            TaskDefinitionError: a name is taken.
        """
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
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = "samecommit",
        tasks: Iterable[Tasks] = (),
        imports: Iterable[str] = (),
        worker: WorkerConfig | None = None,
    ) -> None:
        super().__init__()
        self._dsn = dsn
        self.schema = check_schema(schema)
        self.signals = Signals()
        self.worker_config = worker or WorkerConfig()
        self._imports = tuple(imports)
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
        from samecommit.storage.migrate import migrate

        applied = migrate(self.dsn, self.schema)
        self._make_queues()
        return applied

    def _make_queues(self) -> None:
        """Make the queues, so that a producer that is there before the first worker can enqueue."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for name in sorted({task.definition.queue for task in self._tasks.values()}):
                values = {"name": name, "retention": None, "max_attempts": None}
                door_for(conn)[0].fetch(conn, statement("queue/create", self.schema), values)

    def enqueue(self, job: NewJob[R]) -> Enqueued[R]:
        """Store one job in a transaction of its own: for scripts that have no other data to write.

        Example: ``app.enqueue(enrich.job(lead_id=42))``.
        """
        import psycopg

        with psycopg.connect(self.dsn) as conn:
            stored: Enqueued[R] = store(conn, job, self.schema)
            return stored

    def worker(self, config: WorkerConfig | None = None) -> Worker:
        """Return a worker for this application's tasks; ``await worker.run()`` works until ``worker.stop()``.

        Raises:
            ConfigError: no tasks are declared.
        """
        from samecommit.worker.worker import Worker

        for name in self._imports:
            import_module(name)
        if not self._tasks:
            msg = "this application has no tasks, so a worker would do nothing: declare some, or name their modules in imports="
            raise ConfigError(msg)
        from samecommit import __version__

        return Worker(self.dsn, self.schema, self.definitions, config or self.worker_config, self.signals, __version__)
