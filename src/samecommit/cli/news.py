"""Which signals are news for whoever reads a log, how grave they are, and what they say in one line."""

from __future__ import annotations

import signal
from typing import Any, Literal, TypeAlias

from samecommit.outbox.told import (
    DestinationRecovered,
    DestinationStopped,
    EventParked,
    RelayStarted,
    RelayStopped,
    RepeatPossible,
    ReplayEnded,
)
from samecommit.signals import (
    CopyFound,
    HandlerAbandoned,
    JobFailed,
    JobsEnded,
    LeasesReaped,
    LeaseWasLost,
    PolicyBroken,
    ServiceFailed,
    ServiceRecovered,
    Signal,
    WorkerStarted,
    WorkerStopped,
    WorkerWornOut,
)
from samecommit.worker.supervisor import ChildEnded, ChildKilled, ChildStarted, StopPassedOn

Level: TypeAlias = Literal["info", "warning", "error"]
News: TypeAlias = tuple[Level, str]
_LENGTH = 300


def news(told: Signal) -> News | None:
    """Return a signal's level and text, None when it is no news."""
    return _of_jobs(told) or _of_worker(told) or _of_relays(told) or _of_children(told)


def _of_jobs(told: Signal) -> News | None:
    match told:
        case JobFailed(will_retry=True):
            return "warning", f"{_failure(told)}; it will be tried again"
        case JobFailed():
            return "error", f"{_failure(told)}; it has failed for good"
        case JobsEnded(refused=refused) if refused:
            return "warning", f"{refused} ends were refused: their jobs belong to another worker now"
        case HandlerAbandoned():
            then = f"; {told.stuck_threads} threads hang so" if told.stuck_threads else ""
            return (
                "warning",
                f"job {told.job_id} ({told.kind}) did not stop ({told.reason}) and goes on without its handler{then}",
            )
        case LeasesReaped():
            return "warning", f"{told.leases} dead leases ended, {told.jobs} jobs given back, {told.held} held"
        case PolicyBroken():
            return "warning", f"the retry policy of {told.kind} was not used: {told.complaint}"
        case _:
            return None


def _of_worker(told: Signal) -> News | None:
    match told:
        case WorkerStarted():
            queues = "every queue" if told.queues is None else f"queues {', '.join(told.queues)}"
            return "info", f"working on {queues} as lease {told.lease_id}; kinds: {', '.join(told.kinds)}"
        case WorkerStopped():
            return "info", f"stopped; {told.given_back} jobs given back to the line"
        case CopyFound():
            return "error", f"waiting: {told.reason}"
        case WorkerWornOut():
            return "error", f"all {told.stuck_threads} threads hang in handlers that do not stop: this worker ends"
        case LeaseWasLost():
            return "error", f"lease {told.lease_id} was lost and {told.running} jobs stopped: {told.reason}"
        case ServiceFailed():
            error = shortened(" ".join(told.error.split()))
            return "warning", f"{told.service} failed, next try in {told.retry_seconds:.1f} s: {error}"
        case ServiceRecovered():
            return "info", f"{told.service} works again after {told.failures} failures"
        case _:
            return None


def _of_relays(told: Signal) -> News | None:
    match told:
        case RelayStarted():
            return (
                "info",
                f"relays to {told.destination}/{told.shard}{'' if told.is_clean else ', after one that was cut off'}",
            )
        case RelayStopped():
            return "info", f"relays to {told.destination}/{told.shard} no more: {told.reason}"
        case DestinationStopped():
            return (
                "warning",
                f"{told.destination} is {told.state}, next try in {told.retry_seconds:.1f} s: {told.reason}",
            )
        case DestinationRecovered():
            return "info", f"{told.destination} takes events again"
        case EventParked(state="dead" | "decision"):
            return (
                "error",
                f"event {told.number} waits for a person at {told.destination} ({told.state}): {told.reason}",
            )
        case ReplayEnded():
            return (
                "info",
                f"replay {told.replay} to {told.destination}/{told.shard} {'was cancelled' if told.is_cancelled else 'is through'}",
            )
        case RepeatPossible():
            return (
                "warning",
                f"{told.count} events are sent again to {told.destination} and may arrive twice: {told.reason}",
            )
        case _:
            return None


def _of_children(told: Signal) -> News | None:
    match told:
        case ChildStarted():
            return "info", f"worker {told.number} started as pid {told.pid}"
        case ChildEnded():
            return _end(told)
        case ChildKilled():
            return "error", f"worker {told.number} (pid {told.pid}) did not stop in time and was killed"
        case StopPassedOn():
            then = ("again to stop now", "again to kill", "killing what is left")[min(told.times, 3) - 1]
            return "info", f"{told.received}: stopping {told.children} workers; {then}"
        case _:
            return None


def _end(told: ChildEnded) -> News:
    how = f"ended with status {told.status}" if told.status >= 0 else f"was ended by {_signal_name(-told.status)}"
    text = f"worker {told.number} (pid {told.pid}) {how} after {told.lived_seconds:.1f} s"
    if told.restart_seconds is None:
        return ("error" if told.status else "info"), text
    return "warning", f"{text}; another starts in {told.restart_seconds:.1f} s"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _failure(told: JobFailed) -> str:
    lines = told.error.strip().splitlines() or ["no reason given"]
    return f"job {told.job_id} ({told.kind}) failed in attempt {told.attempts}: {shortened(lines[0])}"


def shortened(value: Any) -> Any:
    """Return a text cut to a line's length, anything else as it is."""
    return value[: _LENGTH - 1] + "…" if isinstance(value, str) and len(value) > _LENGTH else value
