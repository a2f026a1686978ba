"""Waiting for what must come: a condition with a deadline, never a sleep that hopes."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PAUSE_SECONDS = 0.005


async def until(condition: Callable[[], T], timeout_seconds: float = 15.0, what: str = "") -> T:
    """Return the first truthy answer of the condition, asked every few milliseconds while the loop goes on.

    The condition holds the loop up, so the loop gets at least as long between two looks as a look takes.
    """
    deadline = (looked := time.monotonic()) + timeout_seconds
    while not (answer := condition()):
        _check(deadline, timeout_seconds, condition, what)
        await asyncio.sleep(max(_PAUSE_SECONDS, time.monotonic() - looked))
        looked = time.monotonic()
    return answer


def wait_until(condition: Callable[[], T], timeout_seconds: float = 15.0, what: str = "") -> T:
    """Return the first truthy answer of the condition, for plain tests."""
    deadline = time.monotonic() + timeout_seconds
    while not (answer := condition()):
        _check(deadline, timeout_seconds, condition, what)
        time.sleep(_PAUSE_SECONDS)
    return answer


def _check(deadline: float, timeout_seconds: float, condition: Callable[[], object], what: str) -> None:
    if time.monotonic() > deadline:
        name = what or getattr(condition, "__qualname__", repr(condition))
        raise AssertionError(f"not within {timeout_seconds:g} s: {name}")
