"""What it costs to enqueue: one per commit beside a bare INSERT of the same row, and in bulk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from samecommit import App, Task
from samecommit.bench.place import Place
from samecommit.bench.report import Report

_NOTE = "x" * 60


def one_by_one(place: Place, report: Report, *, seconds: float = 3.0, rounds: int = 3) -> None:
    """One job per commit, alternating with a bare INSERT of the same row on the same connection."""
    place.renew()
    app = App(place.dsn, schema=place.schema)

    @app.task()
    async def noop(submission_id: int, email: str, note: str) -> None: ...

    ours = bare = 0.0
    with psycopg.connect(place.dsn) as conn:
        conn.execute(sql.SQL("SET search_path = {}, pg_catalog").format(sql.Identifier(place.schema)))
        conn.commit()
        for _ in range(rounds):
            bare = max(bare, _rate(seconds, lambda: _insert(conn)))
            ours = max(ours, _rate(seconds, lambda: _enqueue(conn, noop)))
    report.add("enqueue", "one per commit", ours, "jobs/s")
    report.add("enqueue", "bare INSERT, one per commit", bare, "jobs/s")
    report.add("enqueue", "ratio to the bare INSERT", ours / bare, "x", bar=0.75)


def _enqueue(conn: psycopg.Connection[Any], noop: Task[[int, str, str], None]) -> None:
    noop.enqueue(conn, 12345, "someone@example.com", _NOTE)
    conn.commit()


def _insert(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "INSERT INTO job (queue_id, kind, pos, payload) VALUES (1, 'noop', nextval('pos_seq'), %s::jsonb) RETURNING id",
        ('{"submission_id": 12345, "email": "someone@example.com", "note": "' + "x" * 60 + '"}',),
    ).fetchone()
    conn.commit()


def _rate(seconds: float, once: Callable[[], None]) -> float:
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        once()
        count += 1
    return count / spent
