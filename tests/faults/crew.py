"""The worker processes of a run: started, killed, paused and stopped by whoever plays fate."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults.nursery import ROOT, Forked, nursery
from tests.support.history import Line, read

CONFIG: Mapping[str, Any] = {
    "concurrency": 50,
    "lease_seconds": 3.0,
    "heartbeat_seconds": 1.0,
    "reap_seconds": 1.0,
    "grace_seconds": 5.0,
}


def wait_for(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    """Wait until a condition is true and return what it gave; the wait is bounded."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:g} s: {what or condition}")
        time.sleep(0.02)
    return value


class Member:
    """One worker process."""

    def __init__(self, name: str, folder: Path, process: subprocess.Popen[bytes] | Forked) -> None:
        self.name, self.process = name, process
        self.file = folder / f"{name}.jsonl"
        self.is_paused = False

    def __repr__(self) -> str:
        return f"<Member {self.name} pid={self.process.pid} exit={self.process.poll()}>"

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def lines(self, *ops: str) -> list[Line]:
        """What it has said so far."""
        return [line for line in read(self.file) if not ops or line["op"] in ops]

    def wait_until(self, *ops: str, count: int = 1, seconds: float = 30.0) -> list[Line]:
        """Wait until it has said so."""
        return list(wait_for(lambda: (said := self.lines(*ops))[count - 1 :] and said, seconds, f"{self} to say {ops}"))

    def send(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Stop it where it is."""
        self.send(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)
        self.is_paused = False

    def end(self, seconds: float = 30.0) -> int:
        """Stop it with SIGTERM and wait; its exit status."""
        self.send(signal.SIGTERM)
        return self.process.wait(seconds)


class Crew:
    """All worker processes of a run, past ones included."""

    def __init__(
        self, dsn: str, folder: Path, config: Mapping[str, Any] | None = None, broken: str | None = None
    ) -> None:
        self.dsn, self.folder, self.broken = dsn, folder, broken
        self.config = {**CONFIG, **(config or {})}
        self.members: list[Member] = []
        self._living: list[Member] = []
        self._numbers = itertools.count()

    def start(
        self,
        faults: str = "",
        environment: Mapping[str, str] | None = None,
        dsn: str | None = None,
        within: Sequence[str] = (),
        **config: Any,
    ) -> Member:
        """Start one more, by a command such as ``ip netns exec there`` if one is given.

        Call it from the main thread: a member dies with the thread that started it.
        """
        name = f"worker-{next(self._numbers):03d}"
        told = {
            "dsn": dsn or self.dsn,
            "folder": str(self.folder),
            "name": name,
            "broken": self.broken,
            "booted": time.time() - time.monotonic(),
            "config": {**self.config, **config},
        }
        path = self.folder / f"{name}.err"
        process: subprocess.Popen[bytes] | Forked
        if within or environment:
            process = _fresh(told, faults, path, within, environment or {})
        else:
            process = nursery().start(told, faults, path)
        self.members.append(Member(name, self.folder, process))
        self._living.append(self.members[-1])
        return self.members[-1]

    @property
    def living(self) -> list[Member]:
        """Those that have not ended."""
        self._living = [member for member in self._living if member.is_alive]
        return list(self._living)

    @property
    def alive(self) -> list[Member]:
        """Those that run now."""
        return [member for member in self.living if not member.is_paused]

    def stop(self, seconds: float = 30.0) -> list[int]:
        """Let all go on, stop all with SIGTERM, wait; their exit statuses."""
        living = self.living
        for member in living:
            if member.is_paused:
                member.resume()
            member.send(signal.SIGTERM)
        return [member.process.wait(seconds) for member in living]

    def errors(self) -> str:
        """What they wrote on standard error."""
        return "".join((self.folder / f"{member.name}.err").read_text() for member in self.members)


def _fresh(
    told: Mapping[str, Any], faults: str, errors: Path, within: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start one that has an environment of its own from its first instruction on."""
    environ = {
        **os.environ,
        "SAMECOMMIT_MEMBER": json.dumps(told),
        "SAMECOMMIT_FAULTS": faults,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        **environment,
    }
    command = [*within, sys.executable, "-m", "tests.faults.member"]
    with errors.open("wb") as file:
        return subprocess.Popen(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stderr=file)


@contextmanager
def crew(dsn: str, folder: Path, config: Mapping[str, Any] | None = None, broken: str | None = None) -> Iterator[Crew]:
    """Have a crew; whoever is left at the end is killed."""
    made = Crew(dsn, folder, config, broken)
    try:
        yield made
    finally:
        for member in made.members:
            if member.is_alive:
                member.kill()
