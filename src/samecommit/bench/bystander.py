"""What the queue costs its neighbours: an ordinary OLTP load at half its capacity, alone and beside 1,000 jobs/s."""

from __future__ import annotations

import contextlib
import statistics
import time

from samecommit.bench.latency import pinned
from samecommit.bench.pgbench import Load, Pgbench
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_SETTLE_SECONDS = 1


def bystander(place: Place, report: Report, *, pairs: int = 5, seconds: int = 10, jobs_rate: int = 1000) -> None:
    """Alternate the neighbour alone and beside the queue; medians, without and with a pinned horizon."""
    place.renew()
    pgbench = Pgbench(place)
    pgbench.run("-i", "-s", "10", "-q")
    capacity = pgbench.load(seconds, rate=None).rate
    report.add("bystander", "capacity alone", capacity, "tx/s")
    for is_pinned in (False, True):
        alone: list[Load] = []
        beside: list[Load] = []
        for pair in range(pairs):
            report.step((pair / pairs + is_pinned) / 2, f"pair {pair + 1}{', pinned' if is_pinned else ''}")
            with pinned(place) if is_pinned else contextlib.nullcontext():
                alone.append(pgbench.load(seconds, rate=capacity / 2))
                beside.append(_beside(place, pgbench, seconds, capacity / 2, jobs_rate))
        _rows(report, alone, beside, is_pinned=is_pinned)


def _beside(place: Place, pgbench: Pgbench, seconds: int, rate: float, jobs_rate: int) -> Load:
    with children() as start:
        worker = start("work", place, config={})
        worker.wait_ready()
        feeder = start("feed", place, rate=jobs_rate, seconds=seconds + 2 * _SETTLE_SECONDS)
        feeder.wait_ready()  # what starts takes a core for a while, and is not what is measured
        feeder.begin()
        time.sleep(_SETTLE_SECONDS)
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
