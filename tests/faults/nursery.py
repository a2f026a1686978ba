"""Starts worker processes in a few milliseconds: one process that has imported everything forks for each that is asked for.

``python -m tests.faults.nursery`` reads requests from its standard input and answers on its standard output, a JSON object
on each line: the pid of the new process, and later the status that it ended with. It has no thread, no loop and no connection
of its own, so a child begins as a fresh interpreter would, after the imports.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.faults import member

from samecommit import faultpoints

ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1


class Forked:
    """A process of the nursery, with as much of `subprocess.Popen` as is needed."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid

    @property
    def returncode(self) -> int | None:
        """What it ended with, as far as that was asked for: `poll` and `wait` ask."""
        return self._nursery.statuses.get(self.pid)

    def poll(self) -> int | None:
        """Return what it ended with, None while it lives."""
        self._nursery.hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""
        until = time.monotonic() + (60.0 if timeout is None else timeout)
        while (status := self.poll()) is None:
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(f"a worker, pid {self.pid}", timeout or 60.0)
            self._nursery.hear(left)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks, seen from outside. It and all of its children die with the thread that made it."""

    def __init__(self) -> None:
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "SAMECOMMIT_FAULTS": ""}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._heard = b""
        self._born: list[int] = []
        self.statuses: dict[int, int] = {}

    def start(self, told: Mapping[str, Any], faults: str, errors: Path) -> Forked:
        """Fork one that is told what to be."""
        assert self._process.stdin is not None
        request = {"told": told, "faults": faults, "errors": str(errors)}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        until = time.monotonic() + 60
        while not self._born:
            self.hear(1.0)
            assert self._process.poll() is None and time.monotonic() < until, "the nursery forks no more"
        return Forked(self, self._born.pop())

    def hear(self, seconds: float) -> None:
        """Take in what it has said, waiting that long for a word."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while select.select([pipe], [], [], seconds)[0] and (more := os.read(pipe, 65_536)):
            *lines, self._heard = (self._heard + more).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "status" in said:
                    self.statuses[said["pid"]] = said["status"]
                else:
                    self.statuses.pop(said["pid"], None)  # the number is given a second time
                    self._born.append(said["pid"])
            seconds = 0.0

    def close(self) -> None:
        """End it, and whoever is left."""
        self._process.kill()
        self._process.wait()


@functools.cache
def nursery() -> Nursery:
    """The nursery of this process."""
    made = Nursery()
    atexit.register(made.close)
    return made


# ------------------------------------------------------------------------------------------------- the forking process


def _say(**said: int) -> None:
    os.write(1, json.dumps(said).encode() + b"\n")


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _say(pid=pid, status=os.waitstatus_to_exitcode(status))


def _fork_for_each() -> dict[str, Any]:
    """Fork for each request; this returns in the children, with what was asked for."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    heard = b""
    while True:
        for ready in select.select([0, woken], [], [])[0]:
            more = os.read(ready, 65_536)
            if ready == woken:
                _reap()
                continue
            if not more:
                os._exit(0)
            *lines, heard = (heard + more).split(b"\n")
            for line in lines:
                if pid := os.fork():
                    _say(pid=pid)
                    continue
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(woken)
                os.close(wake)
                asked: dict[str, Any] = json.loads(line)
                return asked


def _become(asked: Mapping[str, Any]) -> None:
    """Be a worker, as if this process had been started with these faults and had never been another's."""
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(asked["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for source, target in ((nothing, 0), (nothing, 1), (errors, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(errors)
    faults, none = faultpoints.parse(asked["faults"]), faultpoints.FAULTS
    for module in list(sys.modules.values()):
        if getattr(module, "FAULTS", None) is none:
            vars(module)["FAULTS"] = faults
    member.main(asked["told"])


def main() -> None:
    """Fork until nobody asks any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _become(_fork_for_each())


if __name__ == "__main__":
    main()
