"""``samecommit workers``: lists the processes that work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from samecommit.cli.options import Manner, common, database, operator
from samecommit.cli.show import table, when

COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "host": lambda row: row["host"],
    "pid": lambda row: str(row["pid"]),
    "state": lambda row: row["state"],
    "running": lambda row: f"{row['running']}/{row['concurrency']}",
    "heard of": lambda row: when(row["beat_at"]),
    "started": lambda row: when(row["started_at"]),
    "version": lambda row: row["version"],
    "queues": lambda row: "all" if row["queues"] == ["*"] else ", ".join(row["queues"]),
    "kinds": lambda row: ", ".join(row["kinds"]),
}
# what a worker notes of itself, of threads that hang for instance: seldom there
NOTED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {**COLUMNS, "note": lambda row: row["note"] or ""}


@click.command()
@database
@common
def workers(manner: Manner, dsn: str | None, schema: str) -> None:
    """List the workers; a dead one stays until its jobs are given to others."""
    with operator(dsn, schema) as asked:
        rows = asked.workers()
    columns = NOTED if any(row["note"] for row in rows) else COLUMNS
    manner.say(
        rows, table(rows, columns) if rows else "no worker is alive: start one with samecommit worker MODULE:APP"
    )
