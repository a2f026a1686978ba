"""A dependency that is down: how many attempts it still sees, and how fast the backlog drains when it is back."""

from __future__ import annotations

import time
from collections import Counter

from psycopg import sql

from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Plot, Report, per_second


def storm(
    place: Place, report: Report, *, jobs: int = 20_000, outage_seconds: float = 30.0, answers: str = "limited"
) -> None:
    """Handlers of 10 ms ask a dependency; for a while it answers *rate limited* (or fails) instead."""
    place.renew()
    switch = place.folder / "down"
    switch.unlink(missing_ok=True)
    before_jobs = jobs // 2
    place.fill(before_jobs + jobs, kind="depend", payload='{"n": 1}')
    with children() as start:
        worker = start("work", place, answers=answers, config={"concurrency": 50})
        worker.wait_ready()
        place.wait_until_left(jobs)
        switch.touch()
        down = time.monotonic()
        time.sleep(outage_seconds)
        left = int(place.ask(sql.SQL("SELECT count(*) FROM job")))
        switch.unlink()
        up = time.monotonic()
        place.wait_until_left(0)
        drained = time.monotonic() - up
        done = worker.result(stop=True)
    attempts: list[float] = done["attempts"]
    seconds = Counter(int(at) for at in attempts)
    before = [at for at in attempts if at < down]
    rate_before = len(before) / (before[-1] - before[0])
    during = [seconds[s] for s in range(int(down) + 1, int(up))]
    name = f"down {outage_seconds:.0f} s under {left:,} jobs ({'rate limited' if answers == 'limited' else 'errors'})"
    report.add("storm", f"{name}, attempts/s before", rate_before, "1/s")
    report.add(
        "storm", f"{name}, worst second during, share of before", max(during) / rate_before, "x", bar=2, better="lower"
    )
    report.add("storm", f"{name}, mean during, share of before", sum(during) / len(during) / rate_before, "x")
    report.add("storm", f"{name}, drain afterwards, share of before", left / drained / rate_before, "x",
               bar=0.8 if answers == "limited" else None)  # fmt: skip
    report.plots[name] = Plot(
        points=per_second({str(second): n for second, n in seconds.items()}), y="attempts a second"
    )
