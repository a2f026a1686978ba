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
        stack.callback(self._dismiss)  # all at once, before they are waited for one by one

    @property
    def is_importing(self) -> bool:
        """Whether leads are still arriving."""
        return self._importer.exit_status is None

    @property
    def worker_pids(self) -> list[int]:
        """The workers' process numbers."""
        return [worker.pid for worker in self._workers]

    def kill(self, worker_pid: int) -> None:
        """Kill the importer and this worker, and start both again as a supervisor does."""
        victim = next(worker for worker in self._workers if worker.pid == worker_pid)
        for child in (self._importer, victim):
            child.kill()
        self.is_killed = True
        self._workers.remove(victim)
        self._workers.append(self._stack.enter_context(self._start_worker()))
        self._importer = self._stack.enter_context(self._start_importer())

    def check(self) -> None:
        """Refuse to go on with a process that ended by itself and should not have.

        Raises:
            ChildError: names it.
        """
        for child in (self._importer, *self._workers):
            if child.exit_status:
                raise ChildError(f"{child.module} ended with status {child.exit_status}:\n{child.last_words}")

    def _dismiss(self) -> None:
        for child in (self._importer, *self._workers):
            child.dismiss()

    def wait(self, *, timeout_seconds: float) -> None:
        """Wait until all of them have ended by themselves.

        Raises:
            ChildError: one failed, or did not end in time.
        """
        for child in (self._importer, *self._workers):
            child.wait(timeout_seconds=timeout_seconds)
        self.check()
