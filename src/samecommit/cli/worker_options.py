"""Every setting of a worker as an option; what is not given stays as the application has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import click

from samecommit.config import WorkerConfig
from samecommit.retry import Backoff

Command = TypeVar("Command", bound=Callable[..., Any])


class Names(click.ParamType[tuple[str, ...]]):
    """Names parted by commas; the option may be repeated too."""

    name = "NAMES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names, without blanks around them."""
        if isinstance(value, tuple):
            return cast("tuple[str, ...]", value)
        names = tuple(part.strip() for part in str(value).split(","))
        return names if all(names) else self.fail("give names parted by commas", param, ctx)


class Numbers(click.ParamType[tuple[float, ...]]):
    """Numbers parted by commas, a fixed count of them."""

    def __init__(self, metavar: str) -> None:
        self.name = metavar
        self._count = metavar.count(",") + 1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return cast("tuple[float, ...]", value)
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        return numbers if len(numbers) == self._count else self.fail(f"give {self.name}", param, ctx)


OPTIONS: dict[str, tuple[Any, str]] = {
    "queues": (Names(), "Queues to work on; all there are, new ones included, when not given."),
    "concurrency": (click.INT, "Handlers at once."),
    "threads": (click.INT, "Handlers that are plain functions, at once."),
    "children": (click.INT, "Child processes for tasks with executor='process'."),
    "max_jobs_per_child": (click.INT, "Replace a child process after so many jobs."),
    "max_memory_per_child": (click.INT, "Replace a child process that holds more MB after a job."),
    "handler_connections": (click.INT, "Connections that ctx.transaction() shares, of each kind."),
    "connect_seconds": (click.FLOAT, "How long a start waits for a server that is away; for ever, when not given."),
    "lease_seconds": (click.FLOAT, "How long a silent process keeps its jobs."),
    "heartbeat_seconds": (click.FLOAT, "How often it says that it lives."),
    "reap_seconds": (click.FLOAT, "How often dead leases are looked for."),
    "stall_seconds": (click.FLOAT, "How long the event loop may stand still before the process counts as hung."),
    "timeout_seconds": (click.FLOAT, "The longest attempt, unless its task says otherwise."),
    "grace_seconds": (click.FLOAT, "How long a stop waits for running handlers."),
    "poll_seconds": (click.FLOAT, "The longest sleep between two looks when no bell is heard."),
    "batch": (click.INT, "Most jobs in one claim, and most ends in one write."),
    "crash_limit": (click.INT, "Lone crashes before a job is held."),
    "failed_age_days": (click.INT, "When failed jobs move to the history."),
    "inbox_days": (click.INT, "How long a receiver's inbox remembers messages."),
    "retention_days": (Numbers("SHORT,DEFAULT,LONG"), "How long the history keeps its three classes."),
    "backoff": (Numbers("BASE,FACTOR,CAP,JITTER"), "Retries: seconds, factor, longest seconds, jitter from 0 to 1."),
    "doorbell": (bool, "Wait for the bell, or only poll, as it does behind a transaction pooler anyway."),
    "chores": (bool, "Do chores too: promote, reap, retention."),
}


def worker_options(command: Command) -> Command:
    """Give a command an option for each field of `WorkerConfig`."""
    for name, (kind, text) in reversed(OPTIONS.items()):
        flag = name.replace("_", "-")
        spelled = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
        metavar = {"integer": "N", "float": "SECONDS"}.get(getattr(kind, "name", ""))
        command = click.option(spelled, name, type=kind, default=None, metavar=metavar, help=text)(command)
    return command


def worker_config(base: WorkerConfig, given: dict[str, Any]) -> WorkerConfig:
    """Return the application's settings with those of the command line put over them.

    Raises:
        ConfigError: they do not fit together.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if "backoff" in chosen:
        names = ("base_seconds", "factor", "cap_seconds", "jitter")
        chosen["backoff"] = Backoff(**dict(zip(names, chosen["backoff"], strict=True)))
    if "retention_days" in chosen:
        chosen["retention_days"] = tuple(int(days) for days in chosen["retention_days"])
    return replace(base, **chosen)
