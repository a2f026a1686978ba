"""Runs the chosen measurements with progress, prints the tables, writes the JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from samecommit.bench import bystander, depth, drain, enqueue, handlers, latency, payloads, pin, storm
from samecommit.bench.place import Place, open_place
from samecommit.bench.report import Report, Row, machine
from samecommit.errors import ConfigError

Measure = Callable[[Place, Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured: ``1`` is the published size."""

    factor: float = 1.0

    def of(self, number: float) -> int:
        """Return a number of jobs or seconds at this scale, 1 at least."""
        return max(1, int(number * self.factor))


def measures(scale: Scale) -> dict[str, tuple[str, Measure]]:
    """Return the measurements by name, with what they measure."""
    return {
        "drain": (
            "a backlog, one worker, beside the prototype",
            lambda p, r: drain.drain(p, r, jobs=scale.of(200_000)),
        ),
        "latency": ("commit to handler on an idle worker", lambda p, r: latency.pick_up(p, r, samples=scale.of(2000))),
        "late": ("commit to handler, late commits", lambda p, r: latency.late_commit(p, r, seconds=scale.of(8))),
        "enqueue": ("one job per commit", lambda p, r: enqueue.one_by_one(p, r, seconds=scale.of(3))),
        "pinned": (
            "an offered rate with xmin pinned",
            lambda p, r: pin.pinned_rate(p, r, rate=30_000, seconds=max(20, scale.of(60))),
        ),
        "pinned-drain": (
            "3 million jobs enqueued and drained under one pin",
            lambda p, r: pin.pinned_drain(p, r, jobs=scale.of(3_000_000)),
        ),
        "handlers": ("handlers of 50 ms, and short beside long ones", lambda p, r: _handlers(p, r, scale)),
        "payloads": ("WAL by size of the payload", lambda p, r: payloads.payloads(p, r, jobs=scale.of(2000))),
        "strangers": ("a known job behind unknown kinds", lambda p, r: depth.strangers(p, r, jobs=scale.of(100_000))),
        "lanes": ("an empty look at 1,000 lanes", lambda p, r: depth.idle_lanes(p, r)),
        "storm": ("a dependency that is down", lambda p, r: _storm(p, r, scale)),
        "bystander": (
            "an OLTP load beside the queue",
            lambda p, r: bystander.bystander(p, r, seconds=max(3, scale.of(10))),
        ),
        "depth": ("claims at 10 million rows each", lambda p, r: depth.depth(p, r, rows=scale.of(10_000_000))),
        "workers": ("1, 2, 4 and 16 processes", lambda p, r: drain.many_workers(p, r, jobs=scale.of(100_000))),
    }


def _handlers(place: Place, report: Report, scale: Scale) -> None:
    handlers.naps(place, report, jobs=scale.of(40_000))
    handlers.mixed(place, report, jobs=scale.of(20_000))


def _storm(place: Place, report: Report, scale: Scale) -> None:
    for answers in ("limited", "error"):
        storm.storm(place, report, jobs=scale.of(20_000), outage_seconds=max(5.0, 30 * scale.factor), answers=answers)


# What runs when nothing is named: minutes, not an hour, and no more than a gigabyte.
USUAL = ("drain", "latency", "late", "enqueue", "pinned", "handlers", "payloads", "strangers", "lanes")


def run(
    names: Sequence[str],
    *,
    dsn: str | None,
    json_path: Path | None = None,
    plots: Path | None = None,
    factor: float = 1.0,
    may_disturb: bool = False,
    console: Console | None = None,
) -> Report:
    """Measure, print and write; the scratch schema is gone afterwards, also after an interruption.

    Raises:
        ConfigError: a measurement is unknown, or the server is busy.
    """
    console = console or Console()
    known = measures(Scale(factor=factor))
    chosen = list(known) if "all" in names else list(names or USUAL)
    if unknown := [name for name in chosen if name not in known]:
        msg = f"unknown measurement {unknown[0]!r}: one of {', '.join(known)}"
        raise ConfigError(msg)
    report = Report()
    with open_place(dsn, may_disturb=may_disturb) as place, _progress(console) as progress:
        report.place = {**machine(), **place.describe(), "scale": factor}
        try:
            for name in chosen:
                about, measure = known[name]
                task = progress.add_task(f"{name}: {about}", total=None)
                measure(place, report)
                progress.update(task, total=1, completed=1)
        except KeyboardInterrupt:
            console.print("interrupted: what was measured so far")
    show(report, console)
    if json_path is not None:
        report.write(json_path)
    if plots is not None:
        from samecommit.bench.plots import draw

        for path in draw(report, plots):
            console.print(f"plot: {path}")
    return report


def _progress(console: Console) -> Progress:
    return Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console)


def show(report: Report, console: Console) -> None:
    """Print one table for each group of rows, and the caption."""
    for group in dict.fromkeys(row.group for row in report.rows):
        table = Table(title=group, title_justify="left", title_style="bold")
        for heading in ("", "value", "unit", "bar", ""):
            table.add_column(heading, justify="right" if heading in ("value", "bar") else "left")
        for row in (r for r in report.rows if r.group == group):
            table.add_row(row.name, _number(row.value), row.unit, _bar(row), _verdict(row))
        console.print(table)
    console.print(" · ".join(f"{name} {value}" for name, value in report.place.items()), style="dim")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"


def _bar(row: Row) -> str:
    return "" if row.bar is None else ("≥ " if row.better == "higher" else "≤ ") + _number(row.bar)


def _verdict(row: Row) -> str:
    return {None: "", True: "[green]pass[/]", False: "[red]falls short[/]"}[row.is_reached]
