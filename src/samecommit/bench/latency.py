"""Commit to start of the handler: on an idle worker, and when transactions go on after the enqueue."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import Any

import psycopg

from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report, percentile


def pick_up(place: Place, report: Report, *, samples: int = 2000) -> None:
    """One producer, an idle worker: how long a committed job waits for its handler."""
    delays = _measure(place, producers=1, seconds=samples * 0.012, work=0.0, gap=0.01)
    _rows(report, "pick-up, idle", delays, bars={0.5: 1.8, 0.99: 3.5})


def late_commit(place: Place, report: Report, *, seconds: float = 8.0) -> None:
    """Eight producers whose transactions go on for 0 to 4 or 30 ms after the enqueue; the second also with xmin pinned.

    The first keeps both cores of a small machine busy with producing, so it says more about them than about the queue.
    """
    for work in (0.004, 0.030):
        delays = _measure(place, producers=8, seconds=seconds, work=work, gap=0.0)
        _rows(report, f"late commit, 0-{work * 1e3:.0f} ms", delays, bars={0.99: 5.0} if work == 0.030 else {})
    with pinned(place):
        delays = _measure(place, producers=8, seconds=seconds, work=0.030, gap=0.0)
    _rows(report, "late commit, 0-30 ms, xmin pinned", delays, bars={0.99: 5.0})


def _rows(report: Report, name: str, delays: list[float], bars: dict[float, float]) -> None:
    for share, label in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "max")):
        report.add("latency", f"{name} {label}", percentile(delays, share), "ms", bar=bars.get(share), better="lower")
    report.add("latency", f"{name}, samples", len(delays), "jobs")


def _measure(place: Place, *, producers: int, seconds: float, work: float, gap: float) -> list[float]:
    place.renew()
    starts = place.folder / "starts.json"
    with children() as start:
        worker = start("work", place, starts=str(starts), config={})
        worker.wait_ready()
        time.sleep(0.5)
        feeders = [start("produce", place, seed=n + 1, seconds=seconds, work=work, gap=gap) for n in range(producers)]
        commits = [pair for feeder in feeders for pair in feeder.result()["commits"]]
        time.sleep(1.5)
        worker.result(stop=True)
    begun = dict(json.loads(starts.read_text()))
    missing = [n for n, _ in commits if n not in begun]
    delays = [max(0.0, (begun[n] - at) / 1e6) for n, at in commits if n in begun]
    return delays + [float("inf")] * len(missing)


@contextmanager
def pinned(place: Place) -> Any:
    """Hold a snapshot for as long as the block lasts, as a forgotten report does."""
    with psycopg.connect(place.dsn) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT count(*) FROM pg_class")
        yield
