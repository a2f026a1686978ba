"""``samecommit failures``: what jobs failed of, grouped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from samecommit.cli.options import Manner, common, database, operator
from samecommit.cli.show import table, when

COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "jobs": lambda row: str(row["jobs"]),
    "kind": lambda row: row["kind"],
    "first": lambda row: when(row["first_at"]),
    "last": lambda row: when(row["last_at"]),
    "newest": lambda row: str(row["newest_id"]),
    "cause": lambda row: row["cause"] or "",
}


@click.command()
@click.option("--kind", metavar="NAME", help="Of this task only.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many groups.")
@database
@common
def failures(manner: Manner, kind: str | None, limit: int, dsn: str | None, schema: str) -> None:
    """Group the newest 10,000 failed jobs by what they failed of.

    To run a group again: samecommit jobs --state failed --kind KIND --ids | samecommit jobs retry -
    """
    with operator(dsn, schema) as asked:
        rows = asked.failures(kind=kind, limit=limit)
    manner.say(rows, table(rows, COLUMNS) if rows else "no job has failed")
