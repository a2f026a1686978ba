"""What a job's life costs in WAL by the size of its payload."""

from __future__ import annotations

import secrets

import psycopg
from psycopg import sql

from samecommit import App
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_SIZES = (100, 1_000, 4_000, 100_000)


def payloads(place: Place, report: Report, *, jobs: int = 2000) -> None:
    """Enqueue, claim and finish jobs with incompressible payloads of 100 B to 100 kB."""
    for size in _SIZES:
        place.renew()
        count = max(400, jobs * 1000 // max(size, 1000))
        wal = place.wal_bytes()
        _enqueue(place, size, count)
        enqueued = place.wal_bytes() - wal
        wal = place.wal_bytes()
        with children() as start:
            start("work", place, expect=count, config={"batch": 200}).result()
        ended = place.wal_bytes() - wal
        report.add("payloads", f"{size:,} B, enqueue", enqueued / count, "B/job")
        bar = {"bar": 1024, "better": "lower"} if size >= 100_000 else {}
        report.add("payloads", f"{size:,} B, claim + finish", ended / count, "B/job", **bar)
        assert place.ask(sql.SQL("SELECT count(*) FROM job_history")) == count


def _enqueue(place: Place, size: int, count: int) -> None:
    app = App(place.dsn, schema=place.schema)

    @app.task()
    async def large(body: str) -> None: ...

    with psycopg.connect(place.dsn) as conn:
        for _ in range(count):
            large.enqueue(conn, secrets.token_hex(size // 2))
