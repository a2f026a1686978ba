"""Handlers that take time: how close to bare asyncio, and whether long ones hold up short ones."""

from __future__ import annotations

from psycopg import sql

from samecommit.bench.place import Place
from samecommit.bench.processes import Child, children
from samecommit.bench.report import Report


def naps(place: Place, report: Report, *, jobs: int = 40_000) -> None:
    """Handlers of 50 ms with a concurrency of 200: the ideal is 4,000 jobs/s."""
    rate = _rate(place, jobs, 0.05, concurrency=200)
    report.add("handlers", "50 ms, concurrency 200", rate, "jobs/s")
    report.add("handlers", "50 ms, concurrency 200, share of the ideal 4,000/s", rate / 4000, "x", bar=0.95)


def mixed(place: Place, report: Report, *, jobs: int = 20_000) -> None:
    """Handlers of 1 ms alone, and the same beside handlers of 10 s in one worker."""
    alone = _rate(place, jobs, 0.001, concurrency=200)
    beside = _rate(place, jobs, 0.001, concurrency=200, long_ones=50)
    report.add("handlers", "1 ms alone", alone, "jobs/s")
    report.add("handlers", "1 ms beside 50 of 10 s", beside, "jobs/s")
    report.add("handlers", "1 ms beside 50 of 10 s, share of alone", beside / alone, "x", bar=0.90)


def _rate(place: Place, jobs: int, seconds: float, *, concurrency: int, long_ones: int = 0) -> float:
    place.renew()
    if long_ones:
        place.fill(long_ones, kind="nap", payload='{"seconds": 10}')
    place.fill(jobs, kind="nap", payload=f'{{"seconds": {seconds}}}')
    with children() as start:
        worker: Child = start("work", place, expect=jobs, config={"concurrency": concurrency, "grace_seconds": 0.5})
        done = worker.result()
    assert place.ask(sql.SQL("SELECT count(*) FROM job_history")) >= jobs
    return float(jobs / ((done["last"] - done["first"]) / 1e9))
