"""Proof that a handler may run twice: it is cut off at every line, run again, and the outcome must be right each time.

A job starts at least once, so every handler meets this sooner or later: the worker dies after the third line, and another
worker begins at the first. `crash_at_every_point` plays each of these, one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from samecommit.task import Task

_MOST_POINTS = 10_000


class Crash(BaseException):
    """The moment of death. Not an Exception, so that a handler's own ``except`` does not survive it."""


class _Death:
    """Counts the lines of one function and dies before the one numbered ``at``."""

    def __init__(self, code: Any, at: int) -> None:
        self.code, self.at, self.seen = code, at, 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not self.code:
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise Crash(self.where)
        return self

    @contextmanager
    def watching(self) -> Generator[None]:
        """Trace this thread for as long as the block lasts."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def crash_at_every_point(
    task: Task[..., Any], call: Callable[[], Any], *, reset: Callable[[], Any], check: Callable[[], Any]
) -> int:
    """Cut a plain task off before each of its lines, run it again to its end, and check; return the number of points.

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
        death = _Death(task.definition.fn.__code__, point)
        try:
            with death.watching():
                call()
        except Crash:
            call()
        else:
            check()
            return _counted(task, point)
        _check(check, death)
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
        death = _Death(task.definition.fn.__code__, point)
        try:
            with death.watching():
                await call()
        except Crash:
            await call()
        else:
            await check()
            return _counted(task, point)
        await _check_async(check, death)
    return _MOST_POINTS


def _counted(task: Task[..., Any], point: int) -> int:
    if point == 1:
        msg = f"no line of task {task.definition.name!r} ran: does ``call`` call it?"
        raise AssertionError(msg)
    return point - 1


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
    return AssertionError(f"after a run that died before {death.where or 'its end'} and a second, whole run: {error}")
