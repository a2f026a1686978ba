"""What the queue costs its neighbours: an ordinary OLTP load at half its capacity, alone and beside 1,000 jobs/s."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from samecommit.bench.latency import pinned
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report, percentile
from samecommit.errors import ConfigError

_CLIENTS = "4"


@dataclass(frozen=True, slots=True)
class Load:
    """What the neighbour got: transactions a second and the 99th percentile of their latency in ms."""

    rate: float
    p99: float


def bystander(place: Place, report: Report, *, pairs: int = 5, seconds: int = 10, jobs_rate: int = 1000) -> None:
    """Alternate the neighbour alone and beside the queue; medians, without and with a pinned horizon."""
    place.renew()
    pgbench = _Pgbench(place)
    pgbench.run("-i", "-s", "10", "-q")
    capacity = pgbench.load(seconds, rate=None).rate
    report.add("bystander", "capacity alone", capacity, "tx/s")
    for is_pinned in (False, True):
        alone: list[Load] = []
        beside: list[Load] = []
        for _ in range(pairs):
            with pinned(place) if is_pinned else contextlib.nullcontext():
                alone.append(pgbench.load(seconds, rate=capacity / 2))
                beside.append(_beside(place, pgbench, seconds, capacity / 2, jobs_rate))
        _rows(report, alone, beside, is_pinned=is_pinned)


def _beside(place: Place, pgbench: _Pgbench, seconds: int, rate: float, jobs_rate: int) -> Load:
    with children() as start:
        worker = start("work", place, config={})
        worker.wait_ready()
        feeder = start("feed", place, rate=jobs_rate, seconds=seconds + 2)
        load = pgbench.load(seconds, rate=rate)
        feeder.result()
        worker.result(stop=True)
    return load


def _rows(report: Report, alone: list[Load], beside: list[Load], *, is_pinned: bool) -> None:
    when = "pinned" if is_pinned else "not pinned"
    rates = [b.rate / a.rate for a, b in zip(alone, beside, strict=True)]
    tails = [b.p99 / a.p99 for a, b in zip(alone, beside, strict=True)]
    report.add("bystander", f"p99 alone, {when}", statistics.median(a.p99 for a in alone), "ms")
    report.add("bystander", f"throughput kept, {when}", statistics.median(rates), "x", bar=0.90 if is_pinned else 0.95)
    report.add("bystander", f"p99 beside / alone, {when}", statistics.median(tails), "x", bar=1.15, better="lower")


class _Pgbench:
    def __init__(self, place: Place) -> None:
        program = shutil.which("pgbench")
        if place.server_pid is not None:
            from samecommit.embedded import find_binaries

            beside = find_binaries().bin_dir / "pgbench"
            program = str(beside) if beside.exists() else program
        if program is None:
            msg = "the bystander is played by pgbench, which is not on PATH: it comes with PostgreSQL's client packages"
            raise ConfigError(msg)
        self._program, self._place = program, place

    def run(self, *arguments: str) -> str:
        place = self._place
        done = subprocess.run(  # noqa: S603 - found above
            [self._program, *arguments, place.dsn],
            env={**os.environ, "PGOPTIONS": f"-c search_path={place.schema}"},
            cwd=place.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        return done.stdout

    def load(self, seconds: int, rate: float | None) -> Load:
        folder = self._place.folder
        for old in folder.glob("pgbench_log.*"):
            old.unlink()
        limit = () if rate is None else ("-R", f"{rate:.0f}")
        out = self.run("-n", "-c", _CLIENTS, "-j", "1", "-T", str(seconds), "-l", *limit)
        found = re.search(r"tps = ([\d.]+)", out)
        assert found is not None
        return Load(float(found[1]), _tail(folder))


def _tail(folder: Path) -> float:
    times = [
        float(line.split()[2]) / 1e3 for log in folder.glob("pgbench_log.*") for line in log.read_text().splitlines()
    ]
    return percentile(times, 0.99) or 0.0
