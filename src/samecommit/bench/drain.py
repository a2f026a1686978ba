"""How fast a backlog is worked off, by one worker process and by several, beside the prototype."""

from __future__ import annotations

import statistics
from typing import Any

from samecommit.bench.floor import is_here, prototype_drain
from samecommit.bench.place import PAYLOAD, Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_CONFIG = {"concurrency": 1000, "batch": 500}


def drain(place: Place, report: Report, *, jobs: int = 200_000, rounds: int = 3) -> None:
    """Drain a full queue with one worker process, alternating with the prototype; medians and costs."""
    rates: list[float] = []
    floors: list[float] = []
    for turn in range(rounds):
        report.step(turn / rounds, f"round {turn + 1}")
        if is_here():
            floors.append(prototype_drain(place, report, jobs, name=f"prototype, round {turn + 1}"))
        rates.append(_once(place, report, jobs, turn + 1))
    ours = statistics.median(rates)
    report.add("drain", "jobs/s, median", ours, "jobs/s", bar=75_000)
    if not floors:
        return
    floor = statistics.median(floors)
    report.add("drain", "prototype, median", floor, "jobs/s")
    report.add("drain", "ratio to the prototype", ours / floor, "x", bar=0.70)


def _once(place: Place, report: Report, jobs: int, turn: int) -> float:
    place.renew()
    wal = place.wal_bytes()
    place.fill(jobs)
    wal_enqueue = place.wal_bytes() - wal
    cpu, wal = place.server_cpu_seconds(), place.wal_bytes()
    with children() as start:
        done = start("work", place, expect=jobs, config=_CONFIG).result()
    seconds = (done["last"] - done["first"]) / 1e9
    wal_rest = place.wal_bytes() - wal
    cpu_after = place.server_cpu_seconds()
    rate = float(jobs / seconds)
    report.add("drain", f"samecommit, round {turn}", rate, "jobs/s")
    if turn == 1:
        report.add("cost", "worker CPU", done["cpu"] / jobs * 1e6, "ms/1,000 jobs", bar=10, better="lower",
                   note="import and start of the process included")  # fmt: skip
        if cpu is not None and cpu_after is not None:
            report.add("cost", "server CPU", (cpu_after - cpu) / jobs * 1e6, "ms/1,000 jobs")
        report.add("cost", "WAL, enqueue", wal_enqueue / jobs, "B/job")
        report.add("cost", "WAL, claim + finish", wal_rest / jobs, "B/job")
        report.add("cost", "WAL, whole life", (wal_enqueue + wal_rest) / jobs, "B/job", bar=1100, better="lower")
        _sizes(place, report, jobs)
    return rate


def _sizes(place: Place, report: Report, jobs: int) -> None:
    with place.connect() as conn:
        row = conn.execute(
            "SELECT n_dead_tup, n_tup_hot_upd::float8 / nullif(n_tup_upd, 0), pg_total_relation_size(relid) "
            "FROM pg_stat_user_tables WHERE relname = 'job' AND schemaname = %s",
            (place.schema,),
        ).fetchone()
        history = conn.execute(
            "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('job_history'::regclass)"
        ).fetchone()
    if row:
        report.add("cost", "HOT share of claims", row[1], "x", bar=0.99)
        report.add("cost", "hot table and its indexes", row[2] / jobs, "B/job")
    if history and history[0]:
        report.add("cost", "history and its index", float(history[0]) / jobs, "B/job")


def many_workers(place: Place, report: Report, *, jobs: int = 300_000, counts: tuple[int, ...] = (1, 2, 4, 16)) -> None:
    """Idle worker processes get a backlog at once: the total rate, its share of the best, and whether a job was claimed twice."""
    rates: dict[int, float] = {}
    for n, count in enumerate(counts):
        report.step(n / len(counts), f"{count} processes")
        results = _together(place, count, jobs)
        first, last = min(r["first"] for r in results if r["first"]), max(r["last"] for r in results)
        rates[count] = jobs / ((last - first) / 1e9)
        report.add("many workers", f"{count} processes", rates[count], "jobs/s")
        twice = sum(r["claimed"] for r in results) - jobs
        report.add("many workers", f"{count} processes, claimed twice", twice, "jobs", bar=0, better="lower")
    for count, rate in rates.items():
        bar = 0.85 if count == max(counts) else None
        report.add("many workers", f"{count} processes, share of the best", rate / max(rates.values()), "x", bar=bar)


def _together(place: Place, count: int, jobs: int) -> list[dict[str, Any]]:
    place.renew()
    with children() as start:
        workers = [start("work", place, config={"concurrency": 500, "batch": 200}) for _ in range(count)]
        for worker in workers:
            worker.wait_ready()
        with place.connect() as conn, conn.transaction():
            conn.execute(
                "INSERT INTO job (queue_id, kind, pos, payload) "
                "SELECT 1, 'noop', nextval('pos_seq'), %s::jsonb FROM generate_series(1, %s)",
                (PAYLOAD, jobs),
            )
            conn.execute("SELECT ring('queue'::regclass, 1)")
        place.wait_until_left(0)
        return [worker.result(stop=True) for worker in workers]
