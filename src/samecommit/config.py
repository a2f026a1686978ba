"""Every setting of a worker, with its default and unit, checked when it is made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields

from samecommit.definition import check_name
from samecommit.errors import ConfigError
from samecommit.retry import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What a worker process does and how long it waits.

    Args:
        queues: names to work on; None is every queue there is, new ones included.
        concurrency: handlers at once.
        threads: handlers that are plain functions, at once; None is as many as ``concurrency``, 64 at most.
        children: child processes for tasks with ``executor="process"``; None is one for each processor.
        max_jobs_per_child: after so many jobs a child process is replaced; None is never.
        max_memory_per_child: a child process that holds more MB after a job is replaced (on Linux); None is never.
        handler_connections: connections that ``ctx.transaction()`` shares, for plain and for async functions each, at most.
        connect_seconds: how long a start waits for a server that is away; None is for ever.
        lease_seconds: how long a process may be silent before its jobs are given to somebody else.
        heartbeat_seconds: how often it says that it lives; less than half the lease.
        reap_seconds: how often dead leases are looked for.
        stall_seconds: how long the event loop may stand still before the process counts as hung.
        timeout_seconds: the longest attempt, unless its task says otherwise.
        grace_seconds: how long a stop waits for running handlers.
        poll_seconds: the longest sleep between two looks when no bell is heard.
        batch: most jobs in one claim, and most ends in one write.
        doorbell: False polls only (behind a transaction pooler).
        crash_limit: lone crashes before a job is held.
        failed_age_days: when failed jobs move to the history.
        retention_days: how long the history keeps its three classes.
        inbox_days: how long an inbox certainly remembers a message; twice as long at most.
    """

    queues: tuple[str, ...] | None = None
    concurrency: int = 100
    threads: int | None = None
    children: int | None = None
    max_jobs_per_child: int | None = None
    max_memory_per_child: int | None = None
    handler_connections: int = 10
    connect_seconds: float | None = None
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    reap_seconds: float = 5.0
    stall_seconds: float = 120.0
    timeout_seconds: float = 3600.0
    grace_seconds: float = 30.0
    poll_seconds: float = 0.5
    batch: int = 500
    doorbell: bool = True
    chores: bool = True
    crash_limit: int = 3
    failed_age_days: int = 30
    retention_days: tuple[int, int, int] = (1, 7, 90)
    inbox_days: int = 7
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                msg = f"{item.name} is {value!r}: give a number above 0"
                raise ConfigError(msg)
        if len(self.retention_days) != 3 or not all(days >= 1 for days in self.retention_days):
            msg = f"retention_days is {self.retention_days!r}: give three numbers of days, short, default and long, above 0"
            raise ConfigError(msg)
        queues: object = self.queues
        if isinstance(queues, str):
            msg = f"queues is {queues!r}, whose letters would be the names: give a tuple, as in ({queues!r},)"
            raise ConfigError(msg)
        for name in self.queues or ():
            check_name("queue", name)
        if self.heartbeat_seconds * 2 >= self.lease_seconds:
            msg = (
                f"heartbeat_seconds is {self.heartbeat_seconds!r} and lease_seconds {self.lease_seconds!r}: "
                "a lease must outlast two heartbeats, or one slow write loses it"
            )
            raise ConfigError(msg)

    @property
    def thread_count(self) -> int:
        """How many threads run plain functions."""
        return self.threads if self.threads is not None else min(self.concurrency, 64)

    @property
    def child_count(self) -> int:
        """How many child processes run tasks with ``executor="process"``, at most."""
        return self.children if self.children is not None else os.cpu_count() or 1
