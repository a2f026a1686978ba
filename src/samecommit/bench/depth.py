"""Depth: what a claim costs with millions of jobs ready, for later and in the history; unknown kinds and idle lanes."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from samecommit.bench.place import PAYLOAD, Place
from samecommit.bench.processes import children
from samecommit.bench.report import Plot, Report, histogram, percentile
from samecommit.storage.link import bigints
from samecommit.storage.query import statement
from samecommit.storage.session import as_startup_options, session_settings

_SAMPLES = 400


def depth(place: Place, report: Report, *, rows: int = 10_000_000) -> None:
    """Claim in hundreds from a queue with so many jobs ready, then also for later, then also in the history."""
    place.renew()

    def told(part: int, what: str) -> Callable[[int], None]:
        return lambda filled: report.step((part + filled / rows) / 3, f"{filled:,} of {rows:,} {what}")

    place.fill(rows, told=told(0, "ready"))
    start = _claims(place, report, f"{rows:,} ready", 0)
    place.fill(rows, later_seconds=86_400.0, told=told(1, "for later"))
    start = _claims(place, report, f"{rows:,} ready, {rows:,} for later", start)
    _fill_history(place, rows, told(2, "in the history"))
    _claims(place, report, f"{rows:,} ready, {rows:,} for later, {rows:,} in the history", start)


def _claims(place: Place, report: Report, name: str, start: int) -> int:
    """Claim in hundreds from a place in line on, and return the place behind the last one."""
    with psycopg.connect(
        place.dsn, autocommit=True, options=as_startup_options(session_settings(durable=False))
    ) as conn:
        cursor = psycopg.RawCursor(conn)
        lease_id = secrets.randbits(62)
        register = statement("worker/register", place.schema)
        values: dict[str, Any] = {
            "lease_id": lease_id,
            "lease_seconds": 3600.0,
            "pid": 1,
            "concurrency": 1,
            "host": "bench",
        }
        values |= {"version": "0", "queues": ["*"], "kinds": ["noop"], "backends": "[]"}
        cursor.execute(register.text, register.bind(values))
        claim = statement("claim/claim", place.schema)
        times: list[float] = []
        for _ in range(_SAMPLES):
            asked = {"claim_id": secrets.randbits(62), "lease_id": lease_id, "queue_ids": "{1}", "priorities": "{0}"}
            asked |= {"starts": bigints([start]), "sures": bigints([start]), "kinds": ["noop"], "room": 100}
            began = time.perf_counter()
            found = cursor.execute(claim.text, claim.bind(asked), prepare=True, binary=True).fetchall()
            times.append((time.perf_counter() - began) * 1e3)
            start = max([start, *(row[1] for row in found)])
    report.plots[f"claim of 100, {name}"] = Plot(
        points=[(float(n), ms) for n, ms in enumerate(times)], x="claim after claim", y="ms"
    )
    for share, label, bar in ((0.5, "p50", None), (0.99, "p99", 5.0)):
        report.add("depth", f"claim of 100, {name}, {label}", percentile(times, share), "ms", bar=bar, better="lower")
    return start


def _fill_history(place: Place, rows: int, told: Callable[[int], None]) -> None:
    with place.connect() as conn:
        conn.execute("SET synchronous_commit = off")
        for begun in range(0, rows, 500_000):
            conn.execute(
                "INSERT INTO job_history (id, run_at, created_at, finished_at, queue_id, claims, priority, attempts, crashes, "
                "max_attempts, retention, payload_version, kind, state, payload) "
                "SELECT -n, clock_timestamp(), clock_timestamp(), clock_timestamp(), 1, 1, 0, 0, 0, 20, 2, 1, 'noop', 'done', "
                "%s::jsonb FROM generate_series(%s::bigint, %s::bigint) AS n",
                (PAYLOAD, begun + 1, min(begun + 500_000, rows)),
            )
            told(begun)
        conn.execute("VACUUM ANALYZE job_history")


def strangers(place: Place, report: Report, *, jobs: int = 100_000, seconds: float = 8.0) -> None:
    """Jobs of a kind that nobody knows stand at the head of the line: how long a known one behind them waits."""
    place.renew()
    place.fill(jobs, kind="unknown to all")
    starts = place.folder / "strangers.json"
    with children() as start:
        worker = start("work", place, starts=str(starts), config={})
        worker.wait_ready()
        commits = start("produce", place, seed=1, seconds=seconds, work=0.0, gap=0.01).result()["commits"]
        time.sleep(1.0)
        worker.result(stop=True)
    begun = dict(json.loads(starts.read_text()))
    delays = [(begun[n] - at) / 1e6 if n in begun else float("inf") for n, at in commits]
    name = f"pick-up behind {jobs:,} of an unknown kind"
    report.add("depth", f"{name}, p50", percentile(delays, 0.5), "ms")
    report.add("depth", f"{name}, p99", percentile(delays, 0.99), "ms", bar=50, better="lower")
    report.plots[name] = histogram(delays)


def idle_lanes(place: Place, report: Report, *, queues: int = 50, lanes: int = 20) -> None:
    """What an empty look costs with so many queues of so many priorities."""
    place.renew()
    with place.connect() as conn:
        conn.execute("INSERT INTO queue (name) SELECT 'q' || n FROM generate_series(2, %s) AS n", (queues,))
        ids = [row[0] for row in conn.execute("SELECT id FROM queue ORDER BY id").fetchall()]
    with psycopg.connect(
        place.dsn, autocommit=True, options=as_startup_options(session_settings(durable=False))
    ) as conn:
        cursor, claim = psycopg.RawCursor(conn), statement("claim/claim", place.schema)
        pairs = [(queue, priority) for queue in ids for priority in range(lanes)]
        lease_id = secrets.randbits(62)
        cursor.execute(
            sql.SQL(
                "INSERT INTO {}.worker (lease_id, expires_at, pid, concurrency, host, version, queues, kinds) "
                "VALUES ($1, clock_timestamp() + interval '1 h', 1, 1, 'bench', '0', '{{*}}', '{{noop}}')"
            ).format(sql.Identifier(place.schema)),
            (lease_id,),
        )
        times: list[float] = []
        for _ in range(_SAMPLES):
            asked: dict[str, Any] = {
                "claim_id": secrets.randbits(62),
                "lease_id": lease_id,
                "kinds": ["noop"],
                "room": 100,
            }
            asked |= {"queue_ids": bigints(q for q, _ in pairs), "priorities": bigints(p for _, p in pairs)}
            asked["starts"] = asked["sures"] = bigints(0 for _ in pairs)
            began = time.perf_counter()
            cursor.execute(claim.text, claim.bind(asked), prepare=True, binary=True).fetchall()
            times.append((time.perf_counter() - began) * 1e3)
    name = f"empty look at {queues} queues of {lanes} lanes"
    report.add("depth", f"{name}, p50", percentile(times, 0.5), "ms", bar=2.0, better="lower")
