"""Rows of name, value, unit, bar and verdict: shown as tables, written as JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from samecommit import __version__

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One picture: a curve through the points, or as bars the count (y) of what lies from one x to the next."""

    points: Sequence[tuple[float, float]]
    kind: Literal["curve", "bars"] = "curve"
    x: str = "seconds"
    y: str = "per second"


def _nobody(_share: float, _what: str) -> None: ...


@dataclass(slots=True)
class Report:
    """What was measured, and where; ``watch`` is told how far the present measurement is.

    ``is_complete`` is lost by a failure and by an interruption.
    """

    place: dict[str, Any] = field(default_factory=dict[str, Any])
    rows: list[Row] = field(default_factory=list[Row])
    plots: dict[str, Plot] = field(default_factory=dict[str, Plot])
    watch: Callable[[float, str], None] = _nobody
    is_complete: bool = True
    is_interrupted: bool = False

    def step(self, share: float, what: str) -> None:
        """Tell that this share (0 to 1) of the present measurement is over, and what comes now."""
        self.watch(share, what)

    def add(self, group: str, name: str, value: float | None, unit: str, **more: Any) -> None:
        """Add a row."""
        self.rows.append(Row(group=group, name=name, value=value, unit=unit, **more))

    def value(self, group: str, name: str) -> float | None:
        """Return a figure measured earlier, to make ratios of."""
        return next((row.value for row in self.rows if row.group == group and row.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the whole report for JSON."""
        rows = [{**asdict(row), "value": _finite(row.value), "pass": row.is_reached} for row in self.rows]
        return {"place": self.place, "rows": rows, "plots": {name: asdict(plot) for name, plot in self.plots.items()}}

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")


def _finite(value: float | None) -> float | None:
    """What never ended has no number in JSON."""
    return value if value is None or math.isfinite(value) else None


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the value below which that share of the values lies (nearest rank), None when there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def per_second(counts: Mapping[str, int]) -> list[tuple[float, float]]:
    """Return counts by second as a curve that begins at 0, with the seconds in which nothing was."""
    seconds = {int(second): float(count) for second, count in counts.items()}
    first = min(seconds, default=0)
    return [(float(second - first), seconds.get(second, 0.0)) for second in range(first, max(seconds, default=-1) + 1)]


def histogram(values: Iterable[float], *, x: str = "ms") -> Plot:
    """Count values in classes that grow by a fifth, from 0.1 on; what never came is left out."""
    classes = Counter(max(0, math.ceil(math.log(max(value, 0.1) / 0.1, 1.2))) for value in values if value != math.inf)
    bounds = range(max(classes, default=0) + 1)
    return Plot(kind="bars", points=[(0.1 * 1.2**n, float(classes[n])) for n in bounds], x=x, y="samples")


def machine() -> dict[str, Any]:
    """Describe this machine for captions."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "samecommit": __version__,
    }


def _processor() -> str:
    """Return its name as Linux tells it, its kind elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
