"""Starts the processes under test and reads their answers; none outlives the measurement."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from samecommit.bench.place import Place
from samecommit.errors import SamecommitError

_LONGEST_SECONDS = 3600


class Child:
    """One process. Closing its standard input asks it to end."""

    def __init__(self, role: str, place: Place, **options: Any) -> None:
        told = {"dsn": place.dsn, "schema": place.schema, "switch": str(place.folder / "down"), **options}
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "samecommit.bench.child", role, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interruption is for the parent, which ends them
        )

    def wait_ready(self) -> None:
        """Wait until it says that it is ready: a worker has its lease."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            msg = "a measured process did not start; its message stands above"
            raise SamecommitError(msg)

    def begin(self) -> None:
        """Let a process go that is ready and waits for the others."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def result(self, *, stop: bool = False) -> dict[str, Any]:
        """Wait for its end (asking for it when ``stop``) and return what it measured."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if stop:
            self._process.stdin.close()
        limit = threading.Timer(_LONGEST_SECONDS, self._process.kill)
        limit.daemon = True
        limit.start()
        out = self._process.stdout.read()
        self._process.wait()
        limit.cancel()
        if self._process.returncode != 0 or not out.strip():
            msg = f"a measured process ended with status {self._process.returncode}; its message stands above"
            raise SamecommitError(msg)
        answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return answer

    def end(self) -> None:
        """Kill it if it still runs, and let go of its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@contextmanager
def children() -> Generator[Any]:
    """Give a function that starts children; all of them are gone at the end."""
    started: list[Child] = []

    def start(role: str, place: Place, **options: Any) -> Child:
        child = Child(role, place, **options)
        started.append(child)
        return child

    try:
        yield start
    finally:
        for child in started:
            child.end()
