"""Proof that a handler may run twice: it is cut off at every line, run again, and the outcome must be right each time.

A job starts at least once, so every handler meets this sooner or later: the worker dies after the third line, and another
worker begins at the first. Or it dies after the last one, before it could write down that the job is done.
`crash_at_every_point` plays each of these, one after the other. Where the run before has ended its job itself, in a
transaction that was committed, there is no second one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from samecommit.context import BaseContext
from samecommit.task import Task

_MOST_POINTS = 10_000


class Crash(BaseException):
    """The moment of death. Not an Exception, so that a handler's own ``except`` does not survive it."""


class _Death:
    """Counts the lines of a task's function, below its decorators, and dies before the one numbered ``at``."""

    def __init__(self, task: Task[..., Any], at: int) -> None:
        self.code: Any = inspect.unwrap(task.definition.fn).__code__
        self.at, self.seen = at, 0
        self.where = ""
        self._run: Any = None

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not self.code:
            return None
        if event == "call" and self._run is None:
            for value in frame.f_locals.values():
                if isinstance(value, BaseContext):
                    self._run = value._run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - nobody else's to ask
        if event == "line":
            self.seen += 1
            if self.seen == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise Crash(self.where)
        return self

    @property
    def is_final(self) -> bool:
        """Whether the run has ended its job, so that nobody would run it again."""
        return bool(getattr(self._run, "is_finished", False))

    @contextmanager
    def watching(self) -> Generator[None]:
        """Trace this thread for as long as the block lasts, or until the function dies."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            with suppress(Crash):
                yield
        finally:
            sys.settrace(before)


def crash_at_every_point(
    task: Task[..., Any], call: Callable[[], Any], *, reset: Callable[[], Any], check: Callable[[], Any]
) -> int:
    """Cut a plain task off before each of its lines and after the last, run it again, and check; return how many lines ran.

    Args:
        task: the task under test; its own lines are the points, not those of what it calls.
        call: calls the task with a new context, as in ``lambda: charge(context(), 42)``.
        reset: brings the world to its beginning; called before every trial.
        check: asserts that the world is as after exactly one run.

    Raises:
        AssertionError: ``check`` failed; the message names the line at which the run before had died.
    """
    for point in range(1, _MOST_POINTS):
        reset()
        death = _Death(task, point)
        with death.watching():
            call()
        if not death.where:
            check()
            _require_lines(task, point)
        if not death.is_final:
            call()
        _check(check, death)
        if not death.where:
            return point - 1
    return _MOST_POINTS


async def crash_at_every_point_async(
    task: Task[..., Any],
    call: Callable[[], Awaitable[Any]],
    *,
    reset: Callable[[], Awaitable[Any]],
    check: Callable[[], Awaitable[Any]],
) -> int:
    """Do as `crash_at_every_point` for an ``async def`` task."""
    for point in range(1, _MOST_POINTS):
        await reset()
        death = _Death(task, point)
        with death.watching():
            await call()
        if not death.where:
            await check()
            _require_lines(task, point)
        if not death.is_final:
            await call()
        await _check_async(check, death)
        if not death.where:
            return point - 1
    return _MOST_POINTS


def _require_lines(task: Task[..., Any], point: int) -> None:
    if point == 1:
        msg = f"no line of task {task.definition.name!r} ran: does ``call`` call it?"
        raise AssertionError(msg)


def _check(check: Callable[[], Any], death: _Death) -> None:
    try:
        check()
    except AssertionError as error:
        raise _told(death, error) from error


async def _check_async(check: Callable[[], Awaitable[Any]], death: _Death) -> None:
    try:
        await check()
    except AssertionError as error:
        raise _told(death, error) from error


def _told(death: _Death, error: AssertionError) -> AssertionError:
    died = f"before {death.where}" if death.where else "after its last line"
    return AssertionError(f"after a run that died {died} and a second, whole run: {error}")
