"""What workers cost that have nothing to do: statements of one, and the server's CPU for many."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from samecommit.bench.place import Place, another
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_PROCESSES = 4
_COUNTING = {"shared_preload_libraries": "pg_stat_statements"}
_ROOMY = {"max_connections": "500"}


def statements(place: Place, report: Report, *, settle_seconds: float = 60.0, seconds: float = 60.0) -> None:
    """Statements a second of one worker that has been idle for a minute.

    Counted by pg_stat_statements; where that is not loaded, as the transactions of the database, which are the same for a
    worker that commits each statement, with what autovacuum adds.
    """
    with another(place, _COUNTING) as counting:
        here = counting or place
        here.renew()
        with here.connect() as watch, children() as start:
            counter = _counter(watch)
            start("work", here, config={}).wait_ready()
            report.step(0.1, "the worker falls asleep")
            time.sleep(settle_seconds)
            report.step(0.5, f"its statements are counted in {counter.source}")
            before, began = counter.count(), time.monotonic()
            time.sleep(seconds)
            count, spent = counter.count() - before, time.monotonic() - began
        name = f"statements of one worker, idle for {settle_seconds:.0f} s"
        report.add("idle", name, count / spent, "1/s", bar=6, better="lower", note=f"counted in {counter.source}")


def many(
    place: Place, report: Report, *, workers: int = 64, settle_seconds: float = 20.0, seconds: float = 60.0
) -> None:
    """CPU of all the server's processes for that many idle workers, in shares of one core."""
    with another(place, _ROOMY) as roomy:
        here = roomy or place
        name = f"CPU of the server for {workers} idle workers"
        room = int(here.ask(sql.SQL("SELECT current_setting('max_connections')::int")))
        if room < 6 * workers or here.server_cpu_seconds() is None:
            report.add("idle", f"{name}: not measured", None, "of a core",
                       note=f"needs a server on this machine with max_connections of {6 * workers} or more")  # fmt: skip
            return
        here.renew()
        floor = _cpu(here, seconds / 3)
        with children() as start:
            for _ in range(_PROCESSES):
                start("rest", here, workers=workers // _PROCESSES, config={}).wait_ready()
            report.step(0.2, "the workers fall asleep")
            time.sleep(settle_seconds)
            report.step(0.5, "the server's CPU is counted")
            share = _cpu(here, seconds)
        report.add("idle", "CPU of the server without workers", floor, "of a core")
        report.add("idle", name, share, "of a core", bar=0.10, better="lower")


def _cpu(place: Place, seconds: float) -> float:
    before, began = place.server_cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    after = place.server_cpu_seconds()
    assert before is not None, "seen before"
    assert after is not None, "seen before"
    return (after - before) / (time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Counter:
    """Counts what others than its own connection have run in the database."""

    conn: psycopg.Connection[Any]
    source: str
    query: sql.Composed | sql.SQL

    def count(self) -> int:
        """Return how many so far."""
        row = self.conn.execute(self.query).fetchone()
        assert row is not None
        return int(row[0] or 0)


def _counter(conn: psycopg.Connection[Any]) -> _Counter:
    try:
        # into the scratch schema, with which it goes, unless the database has it already
        conn.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        found = conn.execute(
            "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'pg_stat_statements'"
        )
        row = found.fetchone()
        assert row is not None
        query = sql.SQL(
            "SELECT sum(s.calls)::bigint FROM {}.pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid "
            "WHERE d.datname = current_database() AND s.query NOT LIKE '%pg_stat_statements%'"
        ).format(sql.SQL(row[0]))
        counter = _Counter(conn, "pg_stat_statements", query)
        counter.count()
    except psycopg.Error:
        transactions = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        return _Counter(conn, "transactions", sql.SQL(transactions))
    return counter
