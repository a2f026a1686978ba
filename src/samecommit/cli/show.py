"""Tables and times for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

_STATE_STYLES = {
    "failed": "red",
    "held": "yellow",
    "running": "cyan",
    "done": "green",
    "dead": "red",
    "paused": "yellow",
}


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Callable[[Mapping[str, Any]], str]]) -> Table:
    """Return a table: a title and what to show of a row, for each column. The last column is the one that wraps."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    *names, last = columns
    for name in names:
        made.add_column(name, no_wrap=True, overflow="ellipsis")
    made.add_column(last, overflow="fold")
    for row in rows:
        cells = [shown(row) for shown in columns.values()]
        made.add_row(*(Text(cell, style=_STATE_STYLES.get(cell, "")) for cell in cells))
    return made


def when(moment: datetime | None) -> str:
    """Say how long ago, or in how long; empty for never."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """Say a length of time in its largest sensible unit."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def at_most(count: int, limit: int) -> str:
    """Show a count that stopped at ``limit``, as in ``10000+``."""
    return f"{limit}+" if count > limit else str(count)


def pretty(value: Any) -> str:
    """Show a stored value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def details(row: Mapping[str, Any], names: Iterable[str]) -> Table:
    """Show fields of one row, one below the other; those that are empty are left out."""
    made = Table.grid(padding=(0, 2, 0, 0))
    for name in names:
        value = row.get(name)
        if value not in (None, [], {}):
            shown = f"{value:%Y-%m-%d %H:%M:%S} UTC ({when(value)})" if isinstance(value, datetime) else _plain(value)
            made.add_row(Text(name.replace("_", " "), style="dim"), Text(shown))
    return made


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
