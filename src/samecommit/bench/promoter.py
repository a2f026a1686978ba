"""Jobs for later whose time comes, thousands a second, with millions behind them: whether they get in line in time."""

from __future__ import annotations

import time

from psycopg import sql

from samecommit.bench.place import PAYLOAD, Place
from samecommit.bench.processes import children
from samecommit.bench.report import Plot, Report

_LEAD_SECONDS = 15.0  # until the first is due: all of them are stored by then


def promoter(place: Place, report: Report, *, rate: int = 5000, seconds: int = 30, behind: int = 1_000_000) -> None:
    """Spread due times evenly over some seconds, and see when each job has ended."""
    place.renew()
    report.step(0.0, f"{behind:,} for tomorrow")
    place.fill(behind, later_seconds=86_400.0)
    with children() as start:
        worker = start("work", place, config={"concurrency": 1000, "batch": 500})
        worker.wait_ready()
        report.step(0.3, f"{rate:,} due in each second")
        last_due = time.monotonic() + _LEAD_SECONDS + seconds
        spread(place, rate, seconds, _LEAD_SECONDS)
        time.sleep(max(0.0, last_due - time.monotonic()))
        done = int(place.ask(sql.SQL("SELECT count(*) FROM job_history")))
        place.wait_until_left(behind, 600.0)
        worker.result(stop=True)
        _rows(place, report, rate, seconds, done)


def spread(place: Place, rate: int, seconds: int, lead_seconds: float) -> None:
    """Store the jobs; due times count from one moment, however long storing takes."""
    with place.connect() as conn:
        conn.execute(
            "INSERT INTO job (queue_id, kind, run_at, payload) SELECT 1, 'noop', "
            "statement_timestamp() + make_interval(secs => %s + n / %s::float8), %s::jsonb FROM generate_series(1, %s) AS n",
            (lead_seconds, rate, PAYLOAD, rate * seconds),
        )


def _rows(place: Place, report: Report, rate: int, seconds: int, done: int) -> None:
    with place.connect() as conn:
        late = conn.execute(
            "SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - run_at)) "
            "FROM job_history"
        ).fetchone()
        counts = conn.execute(
            "SELECT floor(extract(epoch FROM finished_at - min(finished_at) OVER ())) AS second FROM job_history"
        ).fetchall()
    assert late is not None
    p50, p99 = late[0] or (None, None)
    name = f"{rate:,} due in each of {seconds} s"
    report.add("promoter", f"{name}, done when the last is due", done / (rate * seconds), "x", bar=0.95)
    report.add("promoter", f"{name}, due to end, p50", None if p50 is None else float(p50) * 1e3, "ms")
    report.add("promoter", f"{name}, due to end, p99", None if p99 is None else float(p99) * 1e3, "ms")
    tally: dict[int, float] = {}
    for (second,) in counts:
        tally[int(second)] = tally.get(int(second), 0.0) + 1
    report.plots[name] = Plot(points=[(float(s), tally[s]) for s in sorted(tally)], y="jobs done")
