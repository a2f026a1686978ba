"""Processes of the demo: started, waited for until they say that they are ready, killed or ended.

A child's standard input is a pipe that only its parent holds, and a child ends when it closes. Whatever happens to the
parent, SIGKILL included, nothing of the demo is left running. A child is in a process group of its own, so that Ctrl-C
reaches the parent alone, which then ends them in order; what it says on its standard error is kept for when it fails.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from samecommit.demo.errors import ChildError
from samecommit.demo.stub import READY


class Child:
    """A running ``python -m module``; ``url`` is what it printed behind ``ready``, if it was asked to."""

    def __init__(
        self, module: str, *args: object, env: Mapping[str, str] | None = None, announces: bool = True
    ) -> None:
        self.module = module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", module, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if announces else subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, **(env or {})},
            text=True,
            process_group=0,
        )
        self.url = self._wait_until_ready() if announces else ""

    def __repr__(self) -> str:
        return f"<Child {self.module} pid={self.pid} exit={self.exit_status}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self._process.poll()

    @property
    def last_words(self) -> str:
        """The end of what it said on its standard error; empty once it was ended from here."""
        if self._errors.closed:
            return ""
        file = self._errors.fileno()  # read without moving the position, which the child shares
        return os.pread(file, 4096, max(0, os.fstat(file).st_size - 4096)).decode(errors="replace").strip()

    def kill(self) -> None:
        """Kill it with SIGKILL, as the kernel or a machine does: it cannot say goodbye."""
        self._process.kill()
        self._process.wait()
        self._close()

    def dismiss(self) -> None:
        """Tell it to end, without waiting. Safe to repeat."""
        self._close_input()

    def end(self, *, timeout_seconds: float = 5.0) -> None:
        """Close its input and wait for its end; one that does not end is killed. Safe to repeat."""
        self._close_input()
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close()

    def wait(self, *, timeout_seconds: float) -> int:
        """Wait until it ends by itself and return its exit status.

        Raises:
            ChildError: it did not end in time.
        """
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ChildError(f"{self.module} did not end within {timeout_seconds:g} s") from None

    def _wait_until_ready(self, timeout_seconds: float = 20.0) -> str:
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_line, args=(self._process.stdout, lines), daemon=True).start()
        try:
            line = lines.get(timeout=timeout_seconds)
        except queue.Empty:
            line = ""
        if not line.startswith(READY):
            words = self.last_words
            self.end()
            raise ChildError(f"{self.module} did not become ready: {line or words!r}, exit {self.exit_status}")
        return line.removeprefix(READY).strip()

    def _close_input(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def _close(self) -> None:
        self._close_input()
        self._errors.close()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _read_line(stream: Any, lines: queue.SimpleQueue[str]) -> None:
    lines.put(stream.readline())


def follow_parent() -> None:
    """End this process when its standard input closes, which is when its parent is gone or wants it to end.

    It is asked by SIGTERM, so that a worker gives back what it has; one that does not end is ended.
    """
    threading.Thread(target=_end_after_input, daemon=True).start()


def _end_after_input(patience_seconds: float = 4.0) -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience_seconds)
    os._exit(0)
