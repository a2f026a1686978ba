"""The processes that do the work of one run, and the kill: an importer and a worker at one moment, with SIGKILL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from samecommit.demo.child import Child
from samecommit.demo.errors import ChildError


class Crew:
    """Some workers and one importer; ``stack`` ends whatever is left of them.

    Args:
        stack: where every started process is entered.
        start_worker: starts one worker.
        start_importer: starts the importer; called again after the kill, it must go on where the first one was.
        workers: how many of them.
    """

    def __init__(
        self,
        stack: ExitStack,
        *,
        start_worker: Callable[[], Child],
        start_importer: Callable[[], Child],
        workers: int = 2,
    ) -> None:
        self._stack = stack
        self._start_worker = start_worker
        self._start_importer = start_importer
        self._workers = [stack.enter_context(start_worker()) for _ in range(workers)]
        self._importer = stack.enter_context(start_importer())
        self.is_killed = False

    @property
    def is_importing(self) -> bool:
        """Whether leads are still arriving."""
        return self._importer.exit_status is None

    def kill(self) -> str:
        """Kill the importer and a worker, start both again as a supervisor does, and say whom it hit."""
        victims = (self._importer, self._workers.pop(0))
        for victim in victims:
            victim.kill()
        self.is_killed = True
        self._workers.append(self._stack.enter_context(self._start_worker()))
        self._importer = self._stack.enter_context(self._start_importer())
        return " and ".join(f"pid {victim.pid}" for victim in victims)

    def check(self) -> None:
        """Refuse to go on with a process that ended by itself and should not have.

        Raises:
            ChildError: names it.
        """
        for child in (self._importer, *self._workers):
            if child.exit_status:
                raise ChildError(f"{child!r} failed: see what it printed above")

    def wait(self, *, timeout_seconds: float) -> None:
        """Wait until all of them have ended by themselves.

        Raises:
            ChildError: one failed, or did not end in time.
        """
        for child in (self._importer, *self._workers):
            child.wait(timeout_seconds=timeout_seconds)
        self.check()
