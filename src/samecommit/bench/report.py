"""Rows of name, value, unit, bar and verdict: shown as tables, written as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. ``bar`` is what it should reach, None where there is none."""

    group: str
    name: str
    value: float | None
    unit: str
    bar: float | None = None
    better: Better = "higher"
    note: str = ""

    @property
    def is_reached(self) -> bool | None:
        """Whether the bar is reached; None without bar or value."""
        if self.bar is None or self.value is None:
            return None
        return self.value >= self.bar if self.better == "higher" else self.value <= self.bar


@dataclass(slots=True)
class Report:
    """What was measured, and where."""

    place: dict[str, Any] = field(default_factory=dict[str, Any])
    rows: list[Row] = field(default_factory=list[Row])
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict[str, list[tuple[float, float]]])

    def add(self, group: str, name: str, value: float | None, unit: str, **more: Any) -> None:
        """Add a row."""
        self.rows.append(Row(group=group, name=name, value=value, unit=unit, **more))

    def value(self, group: str, name: str) -> float | None:
        """Return a figure measured earlier, to make ratios of."""
        return next((row.value for row in self.rows if row.group == group and row.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the whole report for JSON."""
        rows = [{**asdict(row), "pass": row.is_reached} for row in self.rows]
        return {"place": self.place, "rows": rows, "series": self.series}

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the value below which that share of the values lies (nearest rank), None when there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def machine() -> dict[str, Any]:
    """Describe this machine for captions."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
