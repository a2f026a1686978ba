"""A pinned horizon: at an offered rate, what share of it is done in every window; and how much disk the pin costs."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from samecommit.bench.latency import pinned
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Plot, Report, per_second

_WINDOW_SECONDS = 10
_PART = 1_000_000


def pinned_rate(place: Place, report: Report, *, rate: int = 30_000, seconds: int = 60) -> None:
    """Offer jobs at a fixed rate while xmin is pinned; the worst window's share of what was offered."""
    place.renew()
    before = _job_bytes(place)
    with pinned(place), children() as start:
        worker = start("work", place, config={"concurrency": 1000, "batch": 500})
        worker.wait_ready()
        feeder = start("feed", place, rate=rate, seconds=seconds)
        feeder.wait_ready()
        feeder.begin()
        sent = feeder.result()["sent"]
        done = worker.result(stop=True)
        disk = _job_bytes(place) - before
    shares = [mean / rate for mean in windows([count for _, count in per_second(done["per_second"])], seconds)]
    name = f"pinned {seconds} s at {rate:,}/s"
    report.add("pinned", f"{name}, offered", sent / seconds, "jobs/s", bar=0.98 * rate)
    report.add("pinned", f"{name}, first window", shares[0], "x")
    report.add("pinned", f"{name}, worst window", min(shares), "x", bar=0.95)
    report.add("pinned", f"{name}, last window", shares[-1], "x")
    report.add("pinned", f"{name}, disk until the pin ends", disk / max(sent, 1), "B/job")
    report.plots[name] = Plot(points=per_second(done["per_second"]), y="jobs a second")


def windows(counts: Sequence[float], seconds: int) -> list[float]:
    """Return the means of the windows of so many seconds, without the first and the last one, which are not whole.

    The last window may be two seconds short. A second without a count is one in which nothing was done: a worker that stands
    still tells nothing.
    """
    whole = [*counts, *[0.0] * seconds][1 : seconds - 1]
    parts = [whole[n : n + _WINDOW_SECONDS] for n in range(0, len(whole), _WINDOW_SECONDS)]
    return [sum(part) / len(part) for part in parts if len(part) >= _WINDOW_SECONDS - 2]


def pinned_drain(place: Place, report: Report, *, jobs: int = 3_000_000) -> None:
    """Enqueue and drain a large backlog as fast as possible, all under one pin: the first and the last windows, and the disk."""
    place.renew()
    before = _job_bytes(place)
    with pinned(place), children() as start:
        place.fill(jobs)
        filled = _job_bytes(place) - before
        report.step(0.4, f"{jobs:,} are drained")
        done = start("work", place, expect=jobs, config={"concurrency": 1000, "batch": 500}).result()
        disk = _job_bytes(place) - before
    counts = [count for _, count in per_second(done["per_second"])]
    counts = counts[1:-1] or counts  # the first and the last second are not whole
    width = max(1, min(_WINDOW_SECONDS, len(counts) // 2))  # of a small scale, so that the two do not overlap
    first, last = (sum(part) / len(part) for part in (counts[:width], counts[-width:]))
    name = f"drain of {jobs:,} under one pin"
    report.add("pinned", f"{name}, first {width} s", first, "jobs/s")
    report.add("pinned", f"{name}, last {width} s", last, "jobs/s", bar=45_000)
    report.add("pinned", f"{name}, last / first", last / first, "x", bar=0.60)
    report.add("pinned", f"{name}, table and indexes when filled", filled / jobs, "B/job")
    report.add("pinned", f"{name}, table and indexes when drained", disk / jobs, "B/job")
    report.plots[name] = Plot(points=per_second(done["per_second"]), y="jobs a second")


def pinned_costs(place: Place, report: Report, *, jobs: int = 6_000_000, sample: int = 200_000) -> None:
    """CPU of the server's backends for a job, before a pin and after so many jobs have gone by under it."""
    place.renew()
    if place.backend_cpu_seconds() is None:
        report.add("pinned", "backend CPU after a long pin: not measured", None, "x", note="the server runs elsewhere")
        return
    with children() as start:
        worker = start("work", place, config={"concurrency": 1000, "batch": 500})
        worker.wait_ready()
        _backend_cpu(place, sample // 10)
        before = _backend_cpu(place, sample)
        with pinned(place):
            for begun in range(0, jobs, _PART):
                report.step(begun / jobs, f"{begun:,} of {jobs:,} under the pin")
                _backend_cpu(place, min(_PART, jobs - begun))
            after = _backend_cpu(place, sample)
        worker.result(stop=True)
    name = f"backend CPU after {jobs:,} jobs under one pin"
    report.add("pinned", "backend CPU before the pin", before, "ms/1,000 jobs")
    report.add("pinned", name, after, "ms/1,000 jobs")
    report.add("pinned", f"{name}, to before", after / before, "x", bar=1.3, better="lower")


def _backend_cpu(place: Place, jobs: int) -> float:
    """Let the worker drain so many; CPU of its backends, ms for 1,000 jobs."""
    before = place.backend_cpu_seconds()
    place.fill(jobs)
    place.wait_until_left(0)
    after = place.backend_cpu_seconds()
    assert before is not None, "seen before"
    assert after is not None, "seen before"
    return (after - before) / jobs * 1e6


def _job_bytes(place: Place) -> int:
    return int(place.ask(sql.SQL("SELECT pg_total_relation_size('job')")))
