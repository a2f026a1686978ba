"""A pinned horizon: at an offered rate, what share of it is done in every window; and how much disk the pin costs."""

from __future__ import annotations

from psycopg import sql

from samecommit.bench.latency import pinned
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_WINDOW_SECONDS = 10


def pinned_rate(place: Place, report: Report, *, rate: int = 30_000, seconds: int = 60) -> None:
    """Offer jobs at a fixed rate while xmin is pinned; the worst window's share of what was offered."""
    place.renew()
    before = _job_bytes(place)
    with pinned(place), children() as start:
        worker = start("work", place, config={"concurrency": 1000, "batch": 500})
        worker.wait_ready()
        sent = start("feed", place, rate=rate, seconds=seconds).result()["sent"]
        done = worker.result(stop=True)
        disk = _job_bytes(place) - before
    counts = [done["per_second"][key] for key in sorted(done["per_second"], key=int)][1 : seconds - 1]
    windows = [counts[n : n + _WINDOW_SECONDS] for n in range(0, len(counts) - _WINDOW_SECONDS + 2, _WINDOW_SECONDS)]
    shares = [sum(window) / len(window) / rate for window in windows if len(window) >= _WINDOW_SECONDS - 2]
    name = f"pinned {seconds} s at {rate:,}/s"
    report.add("pinned", f"{name}, offered", sent / seconds, "jobs/s", bar=0.98 * rate)
    report.add("pinned", f"{name}, first window", shares[0], "x")
    report.add("pinned", f"{name}, worst window", min(shares), "x", bar=0.95)
    report.add("pinned", f"{name}, last window", shares[-1], "x")
    report.add("pinned", f"{name}, disk until the pin ends", disk / max(sent, 1), "B/job")
    report.series[name] = [(float(n), float(count)) for n, count in enumerate(counts)]


def pinned_drain(place: Place, report: Report, *, jobs: int = 3_000_000) -> None:
    """Enqueue and drain a large backlog as fast as possible, all under one pin: the first and the last windows, and the disk."""
    place.renew()
    before = _job_bytes(place)
    with pinned(place), children() as start:
        place.fill(jobs)
        filled = _job_bytes(place) - before
        done = start("work", place, expect=jobs, config={"concurrency": 1000, "batch": 500}).result()
        disk = _job_bytes(place) - before
    counts = [done["per_second"][key] for key in sorted(done["per_second"], key=int)][1:-1]
    first, last = (sum(part) / len(part) for part in (counts[:_WINDOW_SECONDS], counts[-_WINDOW_SECONDS:]))
    name = f"drain of {jobs:,} under one pin"
    report.add("pinned", f"{name}, first {_WINDOW_SECONDS} s", first, "jobs/s")
    report.add("pinned", f"{name}, last {_WINDOW_SECONDS} s", last, "jobs/s", bar=45_000)
    report.add("pinned", f"{name}, last / first", last / first, "x", bar=0.60)
    report.add("pinned", f"{name}, table and indexes when filled", filled / jobs, "B/job")
    report.add("pinned", f"{name}, table and indexes when drained", disk / jobs, "B/job")
    report.series[name] = [(float(n), float(count)) for n, count in enumerate(counts)]


def _job_bytes(place: Place) -> int:
    return int(place.ask(sql.SQL("SELECT pg_total_relation_size('job')")))
