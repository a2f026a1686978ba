"""Several worker processes under one parent: ``samecommit worker --processes N``.

The parent runs the same command N times and does nothing else: it holds no connection and imports no application::

    parent ── stdin pipe ──> child 1 … N      each in a process group of its own

- A child that ends by itself is started again: at once after a steady life, else after a growing pause. One that ends
  as wrongly used (status 2) is not: it would end so for ever. When no child is left the parent ends with that status.
- The first SIGTERM or SIGINT is passed on as SIGTERM: children stop gracefully. The second is passed on as SIGINT: they
  stop at once. The third, or a child that outlives its grace, kills. To a child SIGTERM means the same however often it
  comes, since a service manager may send it to every process of a service, and the parent passes its own on. Children
  have groups of their own, so that a terminal's Ctrl-C reaches them through the parent only.
- A parent that is killed takes its children along: their standard input ends, and on Linux the kernel tells them too
  (PR_SET_PDEATHSIG). Both come as SIGHUP, which stops gracefully and never counts as a second signal.

Everything waits on one queue. Threads put into it what happened: one for each child, and one for signals, which come
through a socket (``signal.set_wakeup_fd``), since a handler would not run while the main thread is about to wait.
"""

from __future__ import annotations

import ctypes
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from samecommit.clock import Monotonic, monotonic
from samecommit.signals import Signal, Signals

WRONG_USAGE = 2
"""The status of a child that was given what it cannot run; see ``samecommit.cli.failure``."""

TOGETHER_SECONDS = 0.2
"""Signals that come as close as this are one, sent to a process and to its group."""

_STEADY_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_MARGIN_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1


class ChildStarted(Signal, frozen=True, kw_only=True):
    """A worker process was started."""

    number: int
    pid: int


class ChildEnded(Signal, frozen=True, kw_only=True):
    """A worker process has ended; ``status`` below 0 is the signal. None in ``restart_seconds``: it is not started again."""

    number: int
    pid: int
    status: int
    lived_seconds: float
    restart_seconds: float | None


class ChildKilled(Signal, frozen=True, kw_only=True):
    """A worker process did not end in time and was killed."""

    number: int
    pid: int


class StopPassedOn(Signal, frozen=True, kw_only=True):
    """The parent was told to stop, for the ``times``-th time, and told its ``children``."""

    received: str
    times: int
    children: int


@dataclass(slots=True, kw_only=True)
class Child:
    """One of the N places: the process in it, or when the next one is started."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    short_lives: int = 0
    restart_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    child: Child
    status: int


@dataclass(frozen=True, slots=True)
class _Asked:
    number: int


class Supervisor:
    """Keeps N children running until it is told to stop.

    Args:
        command: gives the command line of the child with that number, from 1.
        count: how many.
        signals: where it tells what happens.
        grace_seconds: how long a child may take to stop gracefully; None leaves it to the child, which watches itself.
        steady_seconds: a child that lived so long did not crash at its start.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        signals: Signals,
        *,
        grace_seconds: float | None,
        steady_seconds: float = _STEADY_SECONDS,
        clock: Monotonic = monotonic,
    ) -> None:
        self._command, self._signals, self._clock = command, signals, clock
        self._grace_seconds, self._steady_seconds = grace_seconds, steady_seconds
        self._events: queue.SimpleQueue[_Ended | _Asked] = queue.SimpleQueue()
        self.children = [Child(number=number) for number in range(1, count + 1)]
        self._asked = 0
        self._asked_at = -TOGETHER_SECONDS
        self._kill_at: float | None = None
        self._status = 0

    def __repr__(self) -> str:
        state = f"stopping, asked {self._asked} times" if self._asked else "running"
        return f"<Supervisor {state}, {len(self._alive)} of {len(self.children)} children>"

    @property
    def _alive(self) -> list[Child]:
        return [child for child in self.children if child.process is not None]

    @property
    def _is_over(self) -> bool:
        return not self._alive and (bool(self._asked) or all(child.restart_at is None for child in self.children))

    def run(self) -> int:
        """Start the children and keep them; return the exit status. To be called in the main thread.

        Returns:
            0 when every child stopped cleanly, 2 when they cannot be used so, else 1.
        """
        self._listen()
        for child in self.children:
            self._start(child)
        while not self._is_over:
            self._turn()
        return self._status

    def _listen(self) -> None:
        near, far = socket.socketpair()
        far.setblocking(False)
        signal.set_wakeup_fd(far.detach())
        for number in stop_signals():
            signal.signal(number, _leave_to_socket)
        threading.Thread(target=self._hear, args=(near,), name="signals", daemon=True).start()

    def _hear(self, sent: socket.socket) -> None:
        while number := sent.recv(1):
            if number[0] in stop_signals():
                self._events.put(_Asked(number[0]))

    def _turn(self) -> None:
        """Handle the next event, if one comes before something is due, and what is due."""
        match self._next_event():
            case _Asked(number=number):
                self._stop(number)
            case _Ended(child=child, status=status):
                self._ended(child, status)
            case None:
                pass
        self._do_due()

    def _next_event(self) -> _Ended | _Asked | None:
        try:
            return self._events.get(timeout=self._next_wait())
        except queue.Empty:
            return None

    def _next_wait(self) -> float | None:
        moments = [child.restart_at for child in self.children if child.restart_at is not None]
        moments += [self._kill_at] if self._kill_at is not None else []
        return max(0.0, min(moments) - self._clock()) if moments else None

    def _do_due(self) -> None:
        now = self._clock()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill()
        for child in self.children:
            if child.restart_at is not None and now >= child.restart_at:
                self._start(child)

    def _start(self, child: Child) -> None:
        child.restart_at, child.started = None, self._clock()
        try:
            process = child.process = _spawn(self._command(child.number))
        except OSError:  # no memory or no process to be had: as if it had ended at once
            self._ended(child, 1)
            return
        self._signals.emit(ChildStarted(number=child.number, pid=process.pid))
        threading.Thread(target=self._wait, args=(child, process), name=f"child {child.number}", daemon=True).start()

    def _wait(self, child: Child, process: subprocess.Popen[bytes]) -> None:
        self._events.put(_Ended(child, process.wait()))

    def _ended(self, child: Child, status: int) -> None:
        process, child.process = child.process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
        lived = self._clock() - child.started
        pause = None if self._asked or status == WRONG_USAGE else self._pause(child, lived)
        child.restart_at = None if pause is None else self._clock() + pause
        # one that had not yet set up its signals when it was told to stop had nothing to finish either
        is_clean = status == 0 or (bool(self._asked) and status == -signal.SIGTERM)
        if pause is None and not is_clean:
            self._status = WRONG_USAGE if status == WRONG_USAGE else max(self._status, 1)
        pid = process.pid if process is not None else 0
        self._signals.emit(
            ChildEnded(number=child.number, pid=pid, status=status, lived_seconds=lived, restart_seconds=pause)
        )

    def _pause(self, child: Child, lived: float) -> float:
        child.short_lives = 0 if lived >= self._steady_seconds else child.short_lives + 1
        if not child.short_lives:
            return 0.0
        return min(_FIRST_PAUSE * 2.0 ** min(child.short_lives - 1, 16), _LONGEST_PAUSE) * random.uniform(0.75, 1.0)

    def _stop(self, number: int) -> None:
        """Pass a stop on; SIGHUP says that a terminal is gone, and counts only if nobody asked before."""
        now = self._clock()
        if self._asked and (number == getattr(signal, "SIGHUP", None) or now - self._asked_at < TOGETHER_SECONDS):
            return
        self._asked += 1
        self._asked_at = now
        for child in self.children:
            child.restart_at = None
        alive = self._alive
        self._signals.emit(StopPassedOn(received=signal.Signals(number).name, times=self._asked, children=len(alive)))
        if self._asked > 2:
            self._kill()
            return
        for child in alive:
            assert child.process is not None
            child.process.send_signal(signal.SIGTERM if self._asked == 1 else signal.SIGINT)
        grace = self._grace_seconds if self._asked == 1 else 0.0
        self._kill_at = None if grace is None else self._clock() + grace + _MARGIN_SECONDS

    def _kill(self) -> None:
        """Kill what is left, with the processes that its handlers started."""
        self._kill_at = None
        for child in self._alive:
            assert child.process is not None
            self._signals.emit(ChildKilled(number=child.number, pid=child.process.pid))
            _kill_group(child.process)


def _leave_to_socket(_number: int, _frame: FrameType | None) -> None:
    pass


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a process: SIGTERM, SIGINT, and SIGHUP unless it was started to outlive its terminal."""
    found = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


def _spawn(command: Sequence[str]) -> subprocess.Popen[bytes]:
    group = 0 if os.name == "posix" else None
    return subprocess.Popen(list(command), stdin=subprocess.PIPE, process_group=group)  # noqa: S603 - our own command


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        if os.name == "posix" and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass  # it has just ended


def follow_parent() -> None:
    """Send this process SIGHUP when its supervisor is gone; for a child, called in its main thread."""
    if hasattr(signal, "SIGHUP"):  # which nohup has made the supervisor and so its children ignore
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if sys.platform == "linux":
        # set by the child itself: code between fork and exec is not safe in a parent that has threads
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    threading.Thread(target=_until_end, args=(take_input(),), name="samecommit parent", daemon=True).start()


def take_input() -> int:
    """Return what was the standard input, which is empty from now on: what a handler starts would wait for it for ever."""
    taken, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def _until_end(descriptor: int) -> None:
    while os.read(descriptor, 1024):
        pass
    os.kill(os.getpid(), getattr(signal, "SIGHUP", signal.SIGTERM))
