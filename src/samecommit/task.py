"""A task: a declared function, bound to the application that stores its jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from samecommit.definition import EnqueueOptions, TaskDefinition, check_name
from samecommit.errors import ConfigError, PayloadError
from samecommit.job import Enqueued, JobOptions, NewJob
from samecommit.payload import encode_plain
from samecommit.storage.connections import AsyncConn, SyncConn, perform
from samecommit.storage.enqueue import as_text, enqueue
from samecommit.tracing import trace_context
from samecommit.unique import unique_values

if TYPE_CHECKING:
    from typing import Unpack

P = ParamSpec("P")
R = TypeVar("R")
_META_BYTES = 65_536
_KNOWN_OPTIONS = frozenset(EnqueueOptions.__annotations__)
_DEFAULTS: dict[str, Any] = {
    "queue": "default",
    "priority": 0,
    "delay_seconds": 0.0,
    "payload_version": 1,
    "on_conflict": "existing",
}


class Task(Generic[P, R]):
    """What ``@app.task`` returns. Call it to run the function; ``enqueue`` to store a job for it.

    Args:
        definition: the checked function and its options.
        schema: where its jobs are stored; a callable, since an application may be configured after its tasks.
    """

    def __init__(
        self, definition: TaskDefinition, schema: Callable[[], str], options: EnqueueOptions | None = None
    ) -> None:
        self.definition = definition
        self._schema = schema
        self._options: EnqueueOptions = options or {}
        self._job_options = _job_options(definition, self._options)
        self._traced: tuple[dict[str, str], JobOptions] = {}, self._job_options
        self.__doc__ = definition.fn.__doc__
        self.__name__ = definition.name
        self.__wrapped__ = definition.fn

    def __repr__(self) -> str:
        return f"<Task {self.definition.name!r} queue={self.definition.queue!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function itself, without a database; pass a context (``samecommit.testing.context()``) if it takes one."""
        return self.definition.fn(*args, **kwargs)

    @property
    def schema(self) -> str:
        """Where its jobs are stored.

        Raises:
            ConfigError: the task belongs to no application yet.
        """
        return self._schema()

    def using(self, **options: Unpack[EnqueueOptions]) -> Task[P, R]:
        """Return this task with options for the jobs to come, as in ``task.using(priority=10).enqueue(conn, ...)``.

        Raises:
            ConfigError: an option is unknown or out of range.
        """
        if unknown := options.keys() - _KNOWN_OPTIONS:
            msg = f"unknown option {min(unknown)!r} for task {self.definition.name!r}: one of {sorted(_KNOWN_OPTIONS)}"
            raise ConfigError(msg)
        return Task(self.definition, self._schema, cast("EnqueueOptions", {**self._options, **options}))

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]:
        """Check and encode the arguments, and return a job that is not stored yet.

        Raises:
            PayloadError: an argument is missing, unknown, of the wrong type or cannot be stored; says which and where.
        """
        payload = self.definition.codec.encode(args, kwargs)
        trace = trace_context()
        return NewJob(self._in_trace(trace) if trace else self._job_options, payload)

    def _in_trace(self, trace: dict[str, str]) -> JobOptions:
        """Return the options with the trace in ``meta``, beside what is there; many jobs of one span share them."""
        known, options = self._traced
        if known != trace:
            meta = self._options.get("meta") or {}
            values = {**self._job_options.values, "meta": encode_plain({**trace, **meta}, max_bytes=_META_BYTES)}
            options = replace(self._job_options, values=values)
            self._traced = trace, options
        return options

    @overload
    def enqueue(self, conn: AsyncConn, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Enqueued[R]]: ...
    @overload
    def enqueue(self, conn: SyncConn, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R]: ...
    def enqueue(self, conn: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Store a job in the connection's open transaction: it exists if and only if that transaction commits.

        Returns:
            `Enqueued`, or a coroutine of it on an asynchronous connection.

        Raises:
            PayloadError: before any SQL; the transaction stays usable.
            UniqueConflict: ``on_conflict="reject"`` and another job holds the key; the transaction stays usable.
            NotInTransaction: the connection would commit by itself (``using(own_transaction=True)`` says that this is meant).
            UnknownQueue: the queue does not exist; the transaction must be rolled back.
            UnsupportedConnection: the object is no known connection.
        """
        return perform(conn, enqueue(self.job(*args, **kwargs), self._schema()))


def _job_options(definition: TaskDefinition, options: EnqueueOptions) -> JobOptions:
    meta = options.get("meta")
    values: dict[str, Any] = {
        "kind": definition.name,
        "queue": check_name("queue", options.get("queue", definition.queue)),
        "priority": _number("priority", options.get("priority", definition.priority), -100, 100),
        "run_at": _moment("run_at", options.get("run_at")),
        "delay_seconds": _seconds(options.get("delay")),
        "max_attempts": _number("max_attempts", options.get("max_attempts", definition.max_attempts), 1, 32767),
        "tags": _tags(options.get("tags")),
        "parent_id": _number("parent_id", options.get("parent_id"), 1, 2**63 - 1),
        "effect_key": _text("effect_key", options.get("effect_key")),
        "expires_at": _moment("expires_at", options.get("expires_at")),
        "payload_version": definition.version,
        "meta": encode_plain(meta, max_bytes=_META_BYTES) if meta else None,
        **unique_values(
            options.get("unique"),
            scope=options.get("unique_scope"),
            window=options.get("unique_for"),
            on_conflict=options.get("on_conflict", "existing"),
        ),
    }
    return JobOptions(
        {name: value for name, value in values.items() if value is not None and value != _DEFAULTS.get(name)},
        own_transaction=bool(options.get("own_transaction")),
        rejects_duplicate=options.get("on_conflict") == "reject",
    )


def _number(name: str, value: int | None, least: int, most: int) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most):
        msg = f"{name} is {value!r}: give a whole number from {least} to {most}"
        raise ConfigError(msg)
    return value


def _moment(name: str, value: datetime | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        msg = f"{name} is {value!r}: give a datetime with a time zone"
        raise ConfigError(msg)
    try:
        return as_text(value)
    except OverflowError:
        msg = f"{name} is {value!r}: it has no place in the calendar in UTC"
        raise ConfigError(msg) from None


def _seconds(delay: timedelta | float | None) -> float:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0.0
    if not 0 <= seconds < 100 * 365.25 * 86_400:
        msg = f"delay is {delay!r}: give 0 seconds to a hundred years"
        raise ConfigError(msg)
    return float(seconds)


def _tags(tags: Any) -> list[str] | None:
    if tags is None:
        return None
    if isinstance(tags, str):
        msg = f"tags is {tags!r}: give a list of texts"
        raise ConfigError(msg)
    return [cast("str", _text("tag", tag)) for tag in tags]


def _text(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= 1000
        or any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value)
    ):
        msg = f"{name} is {value!r}: give a text of 1 to 1,000 characters without NUL or lone surrogates"
        raise PayloadError(msg, name)
    return value
