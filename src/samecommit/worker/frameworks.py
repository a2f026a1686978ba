"""What a framework does around each request, done around each plain function: this module imports none of them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def between_jobs() -> Generator[None]:
    """Let Django close those of this thread's connections that are broken or too old, before a handler and after it.

    Django itself does that when a request begins and ends. Without it a thread keeps a connection that the server has ended,
    and every later job on that thread fails. What goes wrong in it is met again, and told, where the handler connects.
    """
    _close_old_connections()
    try:
        yield
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    database: Any = sys.modules.get("django.db")  # a connection can only exist where it is loaded
    if database is not None and sys.modules["django.conf"].settings.configured:
        with suppress(Exception):
            database.close_old_connections()
