"""Runs claimed jobs: coroutines on the loop, plain functions on threads, some in children; stops what is not to go on.

Each end is judged (`verdict`) and handed to the completer. Nothing a handler raises passes beyond here: not SystemExit,
not a broken ``__str__``. A handler that does not stop when told is abandoned: its job goes on by what it was told, and its
own end, when it comes, changes nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from samecommit.config import WorkerConfig
from samecommit.context import AsyncContext, Context
from samecommit.definition import TaskDefinition
from samecommit.runtime.threads import ThreadPool
from samecommit.signals import HandlerAbandoned, JobFailed, PolicyBroken, Signals
from samecommit.storage.link import Row
from samecommit.worker.attempt import Attempt, Host, StopReason
from samecommit.worker.frameworks import between_jobs
from samecommit.worker.verdict import (
    GIVE_BACK,
    NO_PAYLOAD,
    STEP_BACK,
    Drop,
    End,
    Settle,
    Verdict,
    is_a,
    judge_error,
    judge_value,
    timed_out,
)

if TYPE_CHECKING:
    from samecommit.worker.apart import Apart

_ABANDON_SECONDS = 5.0
_STOP_SECONDS = 3.0  # a child process has two of them
_LOOK_SECONDS = 0.1
_PREFETCH_SECONDS = 0.02
_STILL_SECONDS = 1.0
_KIND, _CLAIMED_AT, _EXPIRES_AT, _PAYLOAD = 4, 8, 16, 20  # columns of claim/claim.sql


class Ends(Protocol):
    """Where verdicts go."""

    def done(self, attempt: Attempt) -> None: ...
    def add(self, attempt: Attempt, verdict: Verdict) -> None: ...


class Executor:
    """The jobs that this worker has: some run, a few wait for a slot.

    Args:
        tasks: definitions by kind.
        on_room: called when there is room to claim more.
        on_exhausted: called when no thread is left that could run a plain function.
        apart: runs tasks in child processes; None when no task asks for it.
        is_overdue: whether the lease may have run out: then nothing is started.
    """

    def __init__(
        self,
        config: WorkerConfig,
        tasks: dict[str, TaskDefinition],
        host: Host,
        ends: Ends,
        signals: Signals,
        on_room: Callable[[], None],
        on_exhausted: Callable[[], None] = lambda: None,
        apart: Apart | None = None,
        is_overdue: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config, self._tasks, self._host = config, tasks, host
        self._is_overdue = is_overdue
        self._ends, self._signals, self._on_room = ends, signals, on_room
        self.running: dict[int, Attempt] = {}
        self.waiting: deque[Attempt] = deque()
        self._apart, self._on_exhausted = apart, on_exhausted
        self._threads = ThreadPool(config.thread_count)
        self._ended_since, self._prefetch = 0, 0
        self._claim_seconds = 0.0
        self._is_starving = self._is_starting = False
        self._looked = self._now = self._moved = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: contextvars.Context | None = None

    def __repr__(self) -> str:
        return f"<Executor {len(self.running)} running, {len(self.waiting)} waiting, prefetch {self._prefetch}>"

    @property
    def stuck_threads(self) -> int:
        """How many threads hang in handlers that were abandoned."""
        return self._threads.stuck

    @property
    def note(self) -> str | None:
        """What its worker's row should say, None when all is well."""
        stuck = self._threads.stuck
        return f"{stuck} of {2 * self._threads.size} threads hang in handlers that do not stop" if stuck else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self.running and not self.waiting

    @property
    def free_slots(self) -> int:
        """How many jobs could start at once."""
        return max(0, self._config.concurrency - len(self.running) - len(self.waiting))

    def room(self) -> int:
        """Return how many jobs to claim now; 0 while enough wait. Asking for room that is not there wakes later."""
        if len(self.waiting) > self._prefetch // 2:
            room = 0
        else:
            room = self._config.concurrency + self._prefetch - len(self.running) - len(self.waiting)
        self._is_starving = room <= 0
        return min(max(room, 0), self._config.batch)

    def note_claim(self, seconds: float) -> None:
        """Learn how long a claim takes: over a slow network more jobs must wait here for the slots not to stand empty."""
        self._claim_seconds += (seconds - self._claim_seconds) / 8

    def take(self, claim_id: int, rows: Sequence[Row], *, starts: bool = True) -> None:
        """Take over claimed jobs (rows of ``claim/claim.sql``) and start what fits, unless they are to be given back."""
        self._loop = asyncio.get_running_loop()
        if self._context is None:
            self._context = contextvars.copy_context()  # the worker's own, of which every job gets a copy
        self._now = self._loop.time()
        tasks, host = self._tasks, self._host
        self.waiting.extend([Attempt(row, claim_id, tasks[row[_KIND]], host) for row in rows])
        if starts:
            self._start_next()

    def _start_next(self) -> None:
        running, waiting, most = self.running, self.waiting, self._config.concurrency
        if self._is_starting:
            return  # one that ended instead of starting: the loop below goes on, whose depth has no end otherwise
        if waiting and self._is_overdue():
            return  # this process stood still: what waits here may be running elsewhere by now
        self._is_starting = True
        try:
            while waiting and len(running) < most:
                attempt = waiting.popleft()
                running[attempt.id] = attempt
                self._start(attempt)
        finally:
            self._is_starting = False

    def _start(self, attempt: Attempt) -> None:
        assert self._loop is not None
        assert self._context is not None
        task, row = attempt.definition, attempt.row
        if row[_EXPIRES_AT] is not None and row[_EXPIRES_AT] <= row[_CLAIMED_AT]:
            self._end(
                attempt,
                End("cancelled", error=f"expired at {row[_EXPIRES_AT]:%Y-%m-%d %H:%M:%S} UTC before it started"),
            )
            return
        if row[_PAYLOAD] is None:  # its day of bodies was dropped; with no arguments it would do something else
            self._end(attempt, NO_PAYLOAD)
            return
        if task.executor == "process":
            attempt.deadline = math.inf
            attempt.future = asyncio.Task(
                self._run_apart(attempt), loop=self._loop, name="samecommit job apart", context=self._context.copy()
            )
        elif task.is_async:
            self._begin(attempt, self._now)
            # not a copy of the context that is current: a job that begins as another ends is started from within that one
            attempt.future = asyncio.Task(
                self._run(attempt), loop=self._loop, name="samecommit job", context=self._context.copy()
            )
        else:
            attempt.deadline = math.inf
            self._threads.submit(self._thread_work(attempt, self._context.copy()))

    def _begin(self, attempt: Attempt, now: float) -> None:
        """Let an attempt's time run, which it does not while it waits for a thread or a child process."""
        attempt.is_started = True
        attempt.deadline = now + (attempt.definition.timeout_seconds or self._config.timeout_seconds)

    async def _run_apart(self, attempt: Attempt) -> None:
        assert self._apart is not None
        assert self._loop is not None
        loop = self._loop
        try:
            verdict = await self._apart.run(attempt, lambda begun: self._begin(begun, loop.time()))
        except BaseException as error:  # noqa: BLE001 - see the module's first lines
            self._raised(attempt, error)
        else:
            if not attempt.is_abandoned:
                self._end(attempt, verdict)

    async def _run(self, attempt: Attempt) -> None:
        task = attempt.definition
        try:
            kwargs = task.codec.decode(attempt.row[_PAYLOAD])
            if task.context == "none":
                value = await task.fn(**kwargs)
            else:
                value = await task.fn(AsyncContext(attempt.job, attempt), **kwargs)
        except BaseException as error:  # noqa: BLE001 - see the module's first lines
            self._raised(attempt, error)
        else:
            self._returned(attempt, value)

    def _thread_work(self, attempt: Attempt, within: contextvars.Context) -> Callable[[], bool]:
        loop, task = self._loop, attempt.definition
        assert loop is not None

        def work() -> bool:
            if not attempt.wins("start", "thread"):
                return False
            self._begin(attempt, loop.time())
            tell: Callable[[Attempt, Any], None]
            try:
                kwargs = task.codec.decode(attempt.row[_PAYLOAD])
                args = () if task.context == "none" else (Context(attempt.job, attempt),)
                with between_jobs():
                    value = within.run(task.fn, *args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - see the module's first lines
                tell, end = self._raised, error
            else:
                tell, end = self._returned, value
            if not attempt.wins("end", "thread"):
                return True
            _tell(loop, tell, attempt, end)
            return False

        return work

    def _returned(self, attempt: Attempt, value: Any) -> None:
        if attempt.is_abandoned:
            return
        if value is None and attempt.record_json is None and not attempt.is_ended_by_handler:
            self._ends.done(attempt)
            self._gone(attempt)
        else:
            self._end(attempt, judge_value(value, attempt.job, attempt.definition, self._config.backoff))

    def _raised(self, attempt: Attempt, error: BaseException) -> None:
        if attempt.is_abandoned:
            return
        if is_a(error, asyncio.CancelledError) and attempt.stop_reason is not None:
            self._end(attempt, self._stop_verdict(attempt))
            return
        verdict = judge_error(error, attempt.job, attempt.definition, self._config.backoff)
        if attempt.stop_reason in ("cancel", "shutdown") and isinstance(verdict, Settle) and verdict.spends:
            verdict = self._stop_verdict(attempt)
        self._end(attempt, verdict)

    def _stop_verdict(self, attempt: Attempt) -> Verdict:
        match attempt.stop_reason:
            case "timeout":
                seconds = attempt.definition.timeout_seconds or self._config.timeout_seconds
                return timed_out(attempt.job, attempt.definition, self._config.backoff, seconds)
            case "cancel":
                return End("cancelled", error=attempt.cancel_reason or "cancelled on request")
            case "lost":
                return Drop()
            case "shutdown" | None:
                return GIVE_BACK

    def _end(self, attempt: Attempt, verdict: Verdict) -> None:
        if isinstance(verdict, Settle) and verdict.spends:
            self._tell_failure(attempt, verdict)
        self._ends.add(attempt, verdict)
        self._gone(attempt)

    def _tell_failure(self, attempt: Attempt, verdict: Settle) -> None:
        job = attempt.job
        self._signals.emit(
            JobFailed(
                job_id=job.id,
                kind=job.kind,
                attempts=job.attempts + 1,
                error=verdict.error or "",
                will_retry=verdict.state == "ready",
            )
        )
        if verdict.complaint:
            self._signals.emit(PolicyBroken(kind=job.kind, complaint=verdict.complaint))

    def _gone(self, attempt: Attempt) -> None:
        self.running.pop(attempt.id, None)
        self._ended_since += 1
        if self.waiting:
            self._start_next()
        if self._is_starving and len(self.waiting) <= self._prefetch // 2:
            self._is_starving = False
            self._on_room()

    def stop(self, attempt: Attempt, reason: StopReason, detail: str | None = None) -> None:
        """Tell one run to stop; it has a few seconds before it is abandoned. One that waits for a thread ends at once."""
        assert self._loop is not None
        if attempt.stop_reason is None:
            attempt.stop_reason, attempt.cancel_reason, attempt.stopped = reason, detail, self._loop.time()
            if attempt.future is not None:
                attempt.future.cancel()
            elif attempt.wins("start", "loop"):
                self._end(attempt, self._stop_verdict(attempt))

    def cancel(self, job_id: int, reason: str | None) -> None:
        """End a job on somebody's request: at once while it waits here, else by telling its handler."""
        if (attempt := self.running.get(job_id)) is not None:
            self.stop(attempt, "cancel", reason)
        elif (waiting := next((a for a in self.waiting if a.id == job_id), None)) is not None:
            self.waiting.remove(waiting)
            waiting.stop_reason, waiting.cancel_reason = "cancel", reason
            self._ends.add(waiting, self._stop_verdict(waiting))

    def ids(self) -> list[int]:
        """Return the ids of all jobs that this worker has."""
        return [*self.running, *[attempt.id for attempt in self.waiting]]

    def _abandon(self, attempt: Attempt) -> None:
        verdict = self._stop_verdict(attempt)
        self._leave_behind(attempt)
        self._signals.emit(
            HandlerAbandoned(
                job_id=attempt.id,
                kind=attempt.job.kind,
                reason=attempt.stop_reason or "",
                stuck_threads=self._threads.stuck,
            )
        )
        self._end(attempt, verdict)

    def _leave_behind(self, attempt: Attempt) -> None:
        """Go on without a handler that has not stopped: its own end will change nothing, its thread has a substitute."""
        attempt.is_abandoned = True
        if attempt.future is not None or not attempt.wins("end", "loop"):
            return
        self._threads.abandon()
        if self._threads.is_exhausted:
            self._on_exhausted()

    async def look(self) -> float:
        """Stop what is over its time, abandon what does not stop, let others have what waits too long, measure the rate; one turn.

        Raises:
            RuntimeError: plain functions wait, and the system has no thread to give.
        """
        loop = asyncio.get_running_loop()
        now = self._now = loop.time()
        if self.waiting and self._loop is not None:
            self._start_next()  # what was held back while the lease was overdue
        for attempt in list(self.running.values()):
            if attempt.stop_reason is not None:
                if now - attempt.stopped > _ABANDON_SECONDS:
                    self._abandon(attempt)
            elif now > attempt.deadline:
                self.stop(attempt, "timeout")
        if not self.waiting or self._ended_since or len(self.running) < self._config.concurrency:
            self._moved = now
        elif now - self._moved >= _STILL_SECONDS:
            self.give_back_waiting()  # claimed while jobs were short: behind long ones it would wait for hours
        if self._looked:
            rate = self._ended_since / max(now - self._looked, 0.001)
            ahead_seconds = max(_PREFETCH_SECONDS, 2 * self._claim_seconds)
            self._prefetch = min(int(rate * ahead_seconds), self._config.batch)
        self._ended_since, self._looked = 0, now
        self._threads.look()
        return _LOOK_SECONDS

    def give_back_waiting(self) -> int:
        """Return the jobs that never started to the head of the line; the number of them."""
        count = len(self.waiting)
        while self.waiting:
            self._ends.add(self.waiting.popleft(), GIVE_BACK)
        return count

    def give_back_kind(self, kind: str) -> None:
        """Return the jobs of one kind that have not started to the end of the line: its dependency refuses.

        At the head every look of every worker would walk over them until it does not.
        """
        refused = [attempt for attempt in self.waiting if attempt.row[_KIND] == kind]
        if refused:
            self.waiting = deque(attempt for attempt in self.waiting if attempt.row[_KIND] != kind)
        for attempt in refused:
            self._ends.add(attempt, STEP_BACK)

    def abort(self) -> int:
        """Stop everything because the lease is lost: nothing of it may be written. The number that ran."""
        count = len(self.running)
        self.waiting.clear()
        for attempt in list(self.running.values()):
            self.stop(attempt, "lost")
            if attempt.id in self.running:
                self._leave_behind(attempt)
        self.running.clear()
        return count

    async def drain(self, grace_seconds: float) -> int:
        """Wait for running handlers, then give the rest back without spending an attempt; the number given back."""
        given = self.give_back_waiting()
        for attempt in [attempt for attempt in self.running.values() if not attempt.is_started]:
            self.stop(attempt, "shutdown")
            given += 1
        await self._wait_empty(grace_seconds)
        left = list(self.running.values())
        for attempt in left:
            self.stop(attempt, "shutdown")
        await self._wait_empty(_STOP_SECONDS if left else 0.0)
        for attempt in list(self.running.values()):
            self._abandon(attempt)
        self._threads.close()
        if self._apart is not None:
            await self._apart.close()
        return given + len(left)

    async def _wait_empty(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.running and loop.time() < until:
            await asyncio.sleep(0.01)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop has ended: the job was given back, nobody waits for this
        pass
