"""What an attempt's end means for its job: a pure step from an outcome or an exception to the row to write."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from samecommit.definition import TaskDefinition
from samecommit.errors import ChildDied, LeaseLost, PayloadError, PayloadMismatch
from samecommit.job import Job
from samecommit.outcome import AnyOutcome, Cancel, Done, Fail, Hold, Outcome, RateLimited, Retry, Snooze
from samecommit.payload import clean_text, encode_plain
from samecommit.retry import Backoff, delay_of

ERROR_BYTES = 16_384
_MEMBERS: Any = vars(BaseExceptionGroup)["exceptions"]


@dataclass(frozen=True, slots=True)
class End:
    """The job is over: done or cancelled."""

    state: str
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """The job goes on as ready, held or failed. ``outcome`` None leaves no trace (given back)."""

    outcome: str | None
    state: str = "ready"
    delay_seconds: float = 0.0
    run_at: datetime | None = None
    spends: bool = False
    error: str | None = None
    hold_data: str | None = None
    hold_until: datetime | None = None
    cools_seconds: float = 0.0
    complaint: str | None = None
    is_first: bool = False  # before all that waits in its lane


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing to write: somebody else owns the job."""


Verdict = End | Settle | Drop
GIVE_BACK = Settle(None, is_first=True)
STEP_BACK = Settle(None)
NO_PAYLOAD = Settle("held", "held", error="its payload is no longer kept: cancel it, and enqueue it anew")


def judge_value(value: Any, job: Job, task: TaskDefinition, fallback: Backoff) -> Verdict:
    """Judge what a handler returned."""
    if is_a(value, Outcome):
        return judge_outcome(value, job, task, fallback)
    try:
        return End("done", encode_result(task, value))
    except PayloadError as error:
        return _failed_attempt(job, task, fallback, f"{type(error).__name__}: its result cannot be stored: {error}")
    except BaseException as error:  # noqa: BLE001 - what a class of the handler's does when it is written may raise anything
        return _failed_attempt(job, task, fallback, clean(f"its result cannot be stored: {describe(error)}"))


def encode_result(task: TaskDefinition, value: Any) -> str | None:
    """Return a result as JSON, None for None.

    Raises:
        PayloadError: it cannot be stored.
    """
    if value is None:
        return None
    return task.result_codec.encode(value, "result") if task.result_codec else encode_plain(value)


def judge_outcome(outcome: AnyOutcome, job: Job, task: TaskDefinition, fallback: Backoff) -> Verdict:
    """Judge an outcome value, returned or raised; one that makes no sense is a failed attempt."""
    try:
        return _judge(outcome, job, task, fallback)
    except BaseException as error:  # noqa: BLE001 - an attempt without a verdict would run for ever
        return _failed_attempt(job, task, fallback, describe(error))


def _judge(outcome: AnyOutcome, job: Job, task: TaskDefinition, fallback: Backoff) -> Verdict:
    match outcome:
        case Done(result=result):
            return judge_value(result, job, task, fallback) if not isinstance(result, Outcome) else End("done")
        case Retry(after=after, reason=reason):
            return _failed_attempt(job, task, fallback, clean(reason or "retry asked for"), after, "retry")
        case Snooze(until=until, reason=reason):
            if isinstance(until, datetime):
                return Settle("snoozed", run_at=until, error=clean(reason))
            return Settle("snoozed", delay_seconds=until, error=clean(reason))
        case RateLimited(after=after, reason=reason):
            return Settle(
                "rate limited", delay_seconds=after, error=clean(reason or "rate limited"), cools_seconds=after
            )
        case Hold(reason=reason, data=data, until=until):
            return _held(job, task, fallback, reason, data, until)
        case Fail(reason=reason):
            return Settle("failed", "failed", spends=True, error=clean(reason))
        case Cancel(reason=reason):
            return End("cancelled", error=clean(reason))
        case _:
            assert_never(outcome)


def judge_error(error: BaseException, job: Job, task: TaskDefinition, fallback: Backoff) -> Verdict:
    """Judge what a handler raised; of a group, what it stands for."""
    error = _spoken_for(error)
    if is_a(error, Outcome):
        return judge_outcome(error, job, task, fallback)  # type: ignore[arg-type]
    if is_a(error, LeaseLost):
        return Drop()
    if is_a(error, PayloadMismatch):
        return Settle("held", "held", error=clean(f"its payload does not fit the task any more: {error}"))
    if is_a(error, *task.permanent):
        return Settle("failed", "failed", spends=True, error=describe(error))
    return _failed_attempt(job, task, fallback, describe(error))


def _spoken_for(error: BaseException) -> BaseException:
    """Return what a group of errors stands for: its only error, or the outcome that was raised in it; else the error itself."""
    leaves = list(_leaves(error))
    outcomes = [leaf for leaf in leaves if is_a(leaf, Outcome)]
    if len(leaves) == 1:
        return leaves[0]
    return outcomes[0] if len({type(outcome) for outcome in outcomes}) == 1 else error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that are no groups, in their order; a group is asked past whatever its class makes of itself."""
    waiting = [error]
    while waiting:
        if not is_a(it := waiting.pop(), BaseExceptionGroup):
            yield it
            continue
        waiting += reversed(_MEMBERS.__get__(it))


def timed_out(job: Job, task: TaskDefinition, fallback: Backoff, seconds: float) -> Verdict:
    """Judge an attempt that took too long."""
    return _failed_attempt(job, task, fallback, f"timeout: it ran longer than {seconds:g} s", outcome="timed out")


def child_died(error: ChildDied, job: Job, task: TaskDefinition, fallback: Backoff, *, crash_limit: int) -> Settle:
    """Judge an attempt whose child process died: a crash of this job if it had begun; at the limit the job is held."""
    text = clean(f"ChildDied: {error}")
    if not error.is_begun:
        return _failed_attempt(job, task, fallback, text)
    if job.crashes + 1 >= crash_limit:
        return Settle("crashed", "held", spends=True, error=f"{text}; that was crash {job.crashes + 1} of this job")
    return _failed_attempt(job, task, fallback, text, outcome="crashed")


def is_a(value: Any, *kinds: type) -> bool:
    """Whether it really is one of these: ``isinstance`` asks the value too, which may raise anything or lie."""
    return issubclass(type(value), kinds)


def describe(error: BaseException) -> str:
    """Return ``Type: message`` and the traceback, cleaned and cut; never raises."""
    try:
        head = f"{type(error).__qualname__}: {error}"
        text = head + "\n\n" + "".join(traceback.format_exception(error, limit=-30))
    except BaseException as broken:  # noqa: BLE001 - an exception whose __str__ raises must not lose the failure
        text = f"{type(error).__qualname__}: (its message cannot be made: {type(broken).__name__})"
    return clean(text) or type(error).__qualname__


def clean(text: str | None) -> str | None:
    """Return a text that the database takes."""
    return None if text is None else clean_text(str(text), limit_bytes=ERROR_BYTES)


def _failed_attempt(
    job: Job,
    task: TaskDefinition,
    fallback: Backoff,
    error: str | None,
    after: float | None = None,
    outcome: str = "error",
) -> Settle:
    if job.is_last_attempt:
        return Settle(outcome, "failed", spends=True, error=error)
    delay, complaint = (
        (after, None) if after is not None else delay_of(task.backoff or fallback, job.attempts + 1, fallback)
    )
    return Settle(outcome, delay_seconds=max(delay, 0.0), spends=True, error=error, complaint=complaint)


def _held(job: Job, task: TaskDefinition, fallback: Backoff, reason: str, data: Any, until: datetime | None) -> Settle:
    try:
        stored = None if data is None else encode_plain(data, max_bytes=262_144)
    except PayloadError as error:
        return _failed_attempt(
            job, task, fallback, clean(f"PayloadError: what it was held with cannot be stored: {error}")
        )
    return Settle("held", "held", error=clean(reason), hold_data=stored, hold_until=until)
