"""What a task is: a function, its name and its options, checked where it is declared.

A task's name is the job's ``kind``. It defaults to the function's name, must be unique within an application, and does
not change when the file moves; a renamed task keeps its waiting jobs through ``aliases``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NoReturn, TypedDict, get_type_hints

from samecommit.context import AsyncContext, BaseContext, Context
from samecommit.errors import ConfigError, TaskDefinitionError
from samecommit.outcome import Outcome
from samecommit.payload import PayloadCodec, ValueCodec
from samecommit.retry import Backoff, RetryPolicy
from samecommit.unique import OnConflict

Executor = Literal["process"]
ContextKind = Literal["none", "plain", "async"]
_NAME_LENGTH = 200
_UNSTORABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class EnqueueOptions(TypedDict, total=False):
    """What can be said of one job (``task.using(...)``) beside its arguments."""

    queue: str
    priority: int
    run_at: datetime
    delay: timedelta | float
    max_attempts: int
    tags: Iterable[str]
    parent_id: int
    effect_key: str
    expires_at: datetime
    meta: dict[str, Any]
    own_transaction: bool
    unique: str
    unique_scope: str
    unique_for: timedelta | float
    on_conflict: OnConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """A declared task.

    Args:
        name: the job's kind.
        fn: the function as written.
        context: which context its first parameter takes.
        codec: how its arguments are stored.
        result_codec: how its result is stored; None when the function is not annotated.
        timeout_seconds: the longest attempt; None is the worker's default.
        backoff: None is the worker's default.
        permanent: exceptions that fail the job at once.
        executor: where it runs: "process" is a child process that can be killed; None is the loop for ``async def``, else a thread.
        version: of the payload; a job remembers the one it was enqueued with.
    """

    name: str
    fn: Callable[..., Any]
    is_async: bool
    context: ContextKind
    codec: PayloadCodec
    result_codec: ValueCodec | None
    queue: str
    priority: int
    max_attempts: int | None
    timeout_seconds: float | None
    backoff: RetryPolicy | None
    permanent: tuple[type[BaseException], ...]
    aliases: tuple[str, ...]
    version: int
    executor: Executor | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names under which its jobs may wait."""
        return (self.name, *self.aliases)


def define(
    fn: Callable[..., Any],
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
) -> TaskDefinition:
    """Check a function and its options and return the task's definition.

    Raises:
        TaskDefinitionError: names the function, its file and line, and what to change.
    """
    _check_shape(fn)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    is_async = inspect.iscoroutinefunction(fn)
    kind = fn.__name__ if name is None else name
    context = _context_of(fn, is_async=is_async)
    definition = TaskDefinition(
        name=kind,
        fn=fn,
        is_async=is_async,
        context=context,
        codec=PayloadCodec.for_function(fn, skip_first=context != "none", name=kind),
        result_codec=_result_codec(fn),
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        timeout_seconds=seconds,
        backoff=backoff,
        permanent=tuple(permanent),
        aliases=tuple(aliases),
        version=version,
        executor=executor,
    )
    _check_options(fn, definition)
    return definition


def where(fn: Callable[..., Any]) -> str:
    """Return ``name (file:line)`` of a function, for messages."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(fn, '__qualname__', repr(fn))}{place}"


def check_name(what: str, name: str) -> str:
    """Return a queue's or task's name, or refuse one that the database would refuse.

    Raises:
        ConfigError: empty, over 200 characters, with control characters, or with spaces at an end. Case counts.
    """
    if not 1 <= len(name) <= _NAME_LENGTH or name != name.strip(" ") or _UNSTORABLE.search(name):
        msg = f"{what} name {name!r}: give 1 to {_NAME_LENGTH} characters, no control characters, no spaces at the ends"
        raise ConfigError(msg)
    return name


def _refuse(fn: Callable[..., Any], reason: str) -> NoReturn:
    msg = f"{where(fn)} cannot be a task: {reason}"
    raise TaskDefinitionError(msg)


def _check_shape(fn: Callable[..., Any]) -> None:
    if not inspect.isfunction(fn):
        _refuse(fn, "give a plain or async function")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        _refuse(fn, "a generator has no end to record; make it a function")
    if "<lambda>" in fn.__qualname__:
        _refuse(fn, "a lambda has no name to store; use def")
    first = next(iter(inspect.signature(fn).parameters), None)
    if first in ("self", "cls"):
        _refuse(fn, f"its first parameter is {first!r}; declare it outside the class")


def _context_of(fn: Callable[..., Any], *, is_async: bool) -> ContextKind:
    try:
        hints = get_type_hints(fn)
    except (NameError, TypeError) as error:
        _refuse(fn, f"its annotations cannot be resolved: {error}")
    parameters = list(inspect.signature(fn).parameters)
    for name in parameters[1:]:
        if _is_context(hints.get(name)):
            _refuse(fn, f"the context must be the first parameter, not {name!r}")
    first = hints.get(parameters[0]) if parameters else None
    if not _is_context(first):
        if parameters and parameters[0] == "ctx" and first is None:
            _refuse(fn, "annotate ctx with Context (plain functions) or AsyncContext (async functions)")
        return "none"
    wanted = AsyncContext if is_async else Context
    if first is not wanted:
        _refuse(
            fn,
            f"{'an async' if is_async else 'a plain'} function takes {wanted.__name__}, not {getattr(first, '__name__', first)}",
        )
    return "async" if is_async else "plain"


def _is_context(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseContext)


def _result_codec(fn: Callable[..., Any]) -> ValueCodec | None:
    hint = get_type_hints(fn).get("return", inspect.Parameter.empty)
    if hint in (inspect.Parameter.empty, None, type(None), Any) or _mentions_outcome(hint):
        return None
    return ValueCodec(hint)


def _mentions_outcome(hint: Any) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, Outcome)
    return any(_mentions_outcome(part) for part in getattr(hint, "__args__", ()))


def _check_options(fn: Callable[..., Any], definition: TaskDefinition) -> None:
    try:
        for kind in definition.kinds:
            check_name("task", kind)
        check_name("queue", definition.queue)
    except ConfigError as error:
        _refuse(fn, str(error))
    if not -100 <= definition.priority <= 100:
        _refuse(fn, f"priority is {definition.priority!r}; give -100 to 100, higher first")
    if definition.max_attempts is not None and not 1 <= definition.max_attempts <= 32767:
        _refuse(fn, f"max_attempts is {definition.max_attempts!r}; give 1 (no retry) to 32767")
    if definition.timeout_seconds is not None and not definition.timeout_seconds > 0:
        _refuse(fn, f"timeout is {definition.timeout_seconds!r}; give seconds above 0")
    if definition.executor not in (None, "process"):
        _refuse(fn, f'executor is {definition.executor!r}; give "process", or nothing for the loop or a thread')
    if not all(isinstance(e, type) and issubclass(e, BaseException) for e in definition.permanent):
        _refuse(fn, f"permanent is {definition.permanent!r}; give exception classes")
    if (
        definition.backoff is not None
        and not isinstance(definition.backoff, Backoff)
        and not callable(definition.backoff)
    ):
        _refuse(fn, f"backoff is {definition.backoff!r}; give a Backoff or a function of the attempts")
