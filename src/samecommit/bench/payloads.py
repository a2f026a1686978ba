"""What a job's life costs in WAL by the size of its payload."""

from __future__ import annotations

import secrets

import psycopg
from psycopg import sql

from samecommit import App
from samecommit.bench.place import Place, another
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_SIZES = (100, 1_000, 4_000, 100_000)


def payloads(place: Place, report: Report, *, jobs: int = 2000) -> None:
    """Enqueue, claim and finish jobs with incompressible payloads of 100 B to 100 kB, at two levels of WAL."""
    _sizes(place, report, jobs, place.describe()["wal_level"])
    with another(place, {"wal_level": "logical"}) as logical:
        if logical is None:
            report.add(
                "payloads", "at wal_level logical: not measured", None, "B/job", note="the server has another one"
            )
        elif logical is not place:
            _sizes(logical, report, jobs, "logical")


def _sizes(place: Place, report: Report, jobs: int, level: str) -> None:
    for n, size in enumerate(_SIZES):
        report.step((n / len(_SIZES) + (level == "logical")) / 2, f"{size:,} B, {level}")
        place.renew()
        count = max(400, jobs * 1000 // max(size, 1000))
        wal = place.wal_bytes()
        _enqueue(place, size, count)
        enqueued = place.wal_bytes() - wal
        wal = place.wal_bytes()
        with children() as start:
            start("work", place, expect=count, config={"batch": 200}).result()
        ended = place.wal_bytes() - wal
        name = f"{size:,} B, wal_level {level}"
        report.add("payloads", f"{name}, enqueue", enqueued / count, "B/job")
        bar = {"bar": 1024, "better": "lower"} if size >= 100_000 and level != "logical" else {}
        report.add("payloads", f"{name}, claim + finish", ended / count, "B/job", **bar)
        assert place.ask(sql.SQL("SELECT count(*) FROM job_history")) == count


def _enqueue(place: Place, size: int, count: int) -> None:
    app = App(place.dsn, schema=place.schema)

    @app.task()
    async def large(body: str) -> None: ...

    with psycopg.connect(place.dsn) as conn:
        for _ in range(count):
            large.enqueue(conn, secrets.token_hex(size // 2))
