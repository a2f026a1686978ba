"""Waits for a database that is away when a worker or a relay starts. What waiting does not cure ends the start at once."""

from __future__ import annotations

import asyncio
import random
import re

from samecommit.clock import Monotonic, monotonic
from samecommit.signals import ServiceFailed, ServiceRecovered, Signals
from samecommit.storage.link import AsyncLink, LinkDown
from samecommit.storage.migrate import check_version_on

_SERVICE = "connecting"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 10.0

# A refused connection has no SQLSTATE in libpq, only a text. A server that speaks another language is waited for.
_HOPELESS = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|permission denied"
    r"|(?:database|role|user) \"[^\"]*\" does not exist|no such (?:database|user)"
    r"|SSL was required|certificate verify failed|invalid (?:connection option|sslmode|port)",
    re.IGNORECASE,
)


def is_hopeless(error: LinkDown) -> bool:
    """Whether the server is there and does not want us: a password, a name or a permission is wrong."""
    return _HOPELESS.search(str(error)) is not None


async def reach(
    link: AsyncLink,
    signals: Signals,
    stopped: asyncio.Event,
    patience_seconds: float | None = None,
    clock: Monotonic = monotonic,
) -> bool:
    """Wait until the database answers and its schema fits; False when ``stopped`` came first.

    Raises:
        SchemaError: the schema is missing or does not fit this version.
        LinkDown: the server refuses us for good, or the patience is over.
    """
    began, failures = clock(), 0
    while not stopped.is_set():
        try:
            await check_version_on(link)
        except LinkDown as error:
            if is_hopeless(error) or (patience_seconds is not None and clock() - began >= patience_seconds):
                raise
            pause = min(_FIRST_PAUSE * 2.0 ** min(failures, 10), _LONGEST_PAUSE) * (0.5 + random.random() / 2)
            failures += 1
            signals.emit(ServiceFailed(service=_SERVICE, error=str(error), retry_seconds=pause))
            await _wait(stopped, pause)
        else:
            if failures:
                signals.emit(ServiceRecovered(service=_SERVICE, failures=failures))
            return True
    return False


async def _wait(stopped: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        pass
