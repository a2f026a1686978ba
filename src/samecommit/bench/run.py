"""Runs the chosen measurements with progress, prints the tables, writes the JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from samecommit.bench import (
    bystander,
    depth,
    drain,
    emit,
    enqueue,
    handlers,
    idle,
    latency,
    outbox,
    payloads,
    pin,
    promoter,
    storm,
)
from samecommit.bench.place import Place, open_place
from samecommit.bench.plots import draw
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
    of = scale.of
    return {
        "drain": ("a backlog, one worker, beside the prototype", lambda p, r: drain.drain(p, r, jobs=of(200_000))),
        "latency": ("commit to handler on an idle worker", lambda p, r: latency.pick_up(p, r, samples=of(2000))),
        "polling": ("the same without a bell", lambda p, r: latency.polling(p, r, seconds=max(5, of(120)))),
        "late": ("commit to handler, late commits", lambda p, r: latency.late_commit(p, r, seconds=of(8))),
        "late-writer": (
            "late commits beside a transaction that stays open",
            lambda p, r: latency.late_beside_writer(p, r, seconds=of(60)),
        ),
        "enqueue": ("one job per commit", lambda p, r: enqueue.one_by_one(p, r, seconds=of(3))),
        "crowd": ("8 producers beside a busy worker", lambda p, r: enqueue.crowd(p, r, seconds=of(5))),
        "pinned": (
            "an offered rate with xmin pinned",
            lambda p, r: pin.pinned_rate(p, r, rate=30_000, seconds=max(20, of(60))),
        ),
        "pinned-drain": (
            "a backlog enqueued and drained under one pin",
            lambda p, r: pin.pinned_drain(p, r, jobs=of(3_000_000)),
        ),
        "pinned-costs": (
            "CPU of a job before a pin and long into it",
            lambda p, r: pin.pinned_costs(p, r, jobs=of(6_000_000), sample=of(200_000)),
        ),
        "handlers": ("handlers of 50 ms, and short beside long ones", lambda p, r: _handlers(p, r, scale)),
        "payloads": ("WAL by size of the payload", lambda p, r: payloads.payloads(p, r, jobs=of(2000))),
        "strangers": ("a known job behind unknown kinds", lambda p, r: depth.strangers(p, r, jobs=of(100_000))),
        "lanes": ("an empty look at 1,000 lanes", lambda p, r: depth.idle_lanes(p, r)),
        "idle": ("what workers cost that have nothing to do", lambda p, r: _idle(p, r, scale)),
        "storm": ("a dependency that is down", lambda p, r: _storm(p, r, scale)),
        "bystander": ("an OLTP load beside the queue", lambda p, r: bystander.bystander(p, r, seconds=max(3, of(10)))),
        "depth": ("claims at 10 million rows each", lambda p, r: depth.depth(p, r, rows=of(10_000_000))),
        "promoter": ("jobs for later, 5,000 due a second", lambda p, r: _promoter(p, r, scale)),
        "workers": ("1, 2, 4 and 16 processes", lambda p, r: drain.many_workers(p, r, jobs=of(300_000))),
        "emit": ("commits/s of 16 clients with an emit", lambda p, r: emit.emit_cost(p, r, seconds=max(1, of(10)))),
        "outbox": ("reading and delivering events", lambda p, r: _outbox(p, r, scale)),
        "outbox-backlog": (
            "a backlog of 10 million events, twice",
            lambda p, r: outbox.backlog(p, r, events=of(10_000_000)),
        ),
    }


def _handlers(place: Place, report: Report, scale: Scale) -> None:
    handlers.naps(place, report, jobs=scale.of(40_000))
    report.step(0.5, "beside long ones")
    handlers.mixed(place, report, jobs=scale.of(20_000))


def _storm(place: Place, report: Report, scale: Scale) -> None:
    for n, answers in enumerate(("limited", "error")):
        report.step(n / 2, answers)
        storm.storm(place, report, jobs=scale.of(20_000), outage_seconds=max(5.0, 30 * scale.factor), answers=answers)


def _idle(place: Place, report: Report, scale: Scale) -> None:
    seconds = max(5, scale.of(60))
    idle.statements(place, report, settle_seconds=seconds, seconds=seconds)
    idle.many(place, report, settle_seconds=max(5, scale.of(20)), seconds=seconds)


def _promoter(place: Place, report: Report, scale: Scale) -> None:
    promoter.promoter(place, report, seconds=max(5, scale.of(30)), behind=scale.of(1_000_000))


def _outbox(place: Place, report: Report, scale: Scale) -> None:
    outbox.throughput(place, report, events=scale.of(400_000))
    outbox.pick_up(place, report, samples=scale.of(1000))
    outbox.fan_out(place, report, seconds=max(2, scale.of(10)))


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

    A measurement that fails is a row that says so, and the others go on. What is written is written after each.

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
                task = progress.add_task(f"{name}: {about}", total=1.0, what="")
                report.watch = partial(_move, progress, task)
                _measure(name, measure, place, report)
                report.step(1.0, "")
                _write(report, json_path, plots)
        except KeyboardInterrupt:
            report.is_complete, report.is_interrupted = False, True
            console.print("interrupted: what was measured so far")
            _write(report, json_path, plots)
    show(report, console)
    return report


def _measure(name: str, measure: Measure, place: Place, report: Report) -> None:
    try:
        measure(place, report)
    except Exception as error:  # noqa: BLE001 - one measurement must not cost what the others have found
        report.is_complete = False
        report.add(name, "failed", None, "", note=" ".join(f"{type(error).__name__}: {error}".split()))


def _write(report: Report, json_path: Path | None, plots: Path | None) -> None:
    if json_path is not None:
        report.write(json_path)
    if plots is not None:
        draw(report, plots)


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    return Progress(*columns, TextColumn("[dim]{task.fields[what]}"), console=console)


def _move(progress: Progress, task: TaskID, share: float, what: str) -> None:
    progress.update(task, completed=share, what=what)


def show(report: Report, console: Console) -> None:
    """Print one table for each group of rows, and the caption."""
    for group in dict.fromkeys(row.group for row in report.rows):
        rows = [row for row in report.rows if row.group == group]
        table = Table(title=group, title_justify="left", title_style="bold")
        for heading in ("", "value", "unit", "bar", ""):
            table.add_column(heading, justify="right" if heading in ("value", "bar") else "left")
        for row in rows:
            table.add_row(row.name, _number(row.value), row.unit, _bar(row), _verdict(row))
        console.print(table)
        for row in rows:
            if row.note:
                console.print(f"{row.name}: {row.note}", style="dim", markup=False)
    console.print(" · ".join(f"{name} {value}" for name, value in report.place.items()), style="dim")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"


def _bar(row: Row) -> str:
    return "" if row.bar is None else ("≥ " if row.better == "higher" else "≤ ") + _number(row.bar)


def _verdict(row: Row) -> str:
    return {None: "", True: "[green]pass[/]", False: "[red]falls short[/]"}[row.is_reached]
