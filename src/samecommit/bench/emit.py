"""What an emit costs the transactions of an application: its commits a second without and with one, by pgbench."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Generator
from contextlib import contextmanager

from psycopg import sql

from samecommit.bench.pgbench import Pgbench
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_CLIENTS = 16
_BASE = """\\set id random(1, 100000)
BEGIN;
UPDATE lead SET note = note WHERE id = :id;
{emit}END;
"""
_EMIT = "SELECT number FROM emit('lead.created', '{\"id\": 1}', (:id)::text);\n"


def emit_cost(place: Place, report: Report, *, seconds: int = 10, rounds: int = 3) -> None:
    """An UPDATE and its commit by 16 clients, in turn without an emit and with one.

    With an emit: the bell switched off; beside a relay, which is busy then; and while somebody sleeps at the bell and never
    wakes, so that every commit notifies: the worst that can be.
    """
    place.renew()
    with place.connect() as conn:
        conn.execute(sql.SQL("CREATE TABLE lead (id int PRIMARY KEY, note text NOT NULL)"))
        conn.execute("INSERT INTO lead SELECT n, 'x' FROM generate_series(1, 100000) AS n")
        conn.execute("VACUUM ANALYZE lead")
    pgbench = Pgbench(place)
    ways = {"without an emit": _rest, "bell off": _rest, "relay busy": _relaying, "relay asleep": _sleeping}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds):
        for n, (way, beside) in enumerate(ways.items()):
            report.step((turn + n / len(ways)) / rounds, f"round {turn + 1}, {way}")
            script = place.folder / "emit.sql"
            script.write_text(_BASE.format(emit="" if way == "without an emit" else _EMIT))
            options = {"samecommit.doorbell": "off"} if way == "bell off" else {}
            with beside(place):
                rates[way].append(pgbench.commits(script, seconds, clients=_CLIENTS, settings=options))
    base = statistics.median(rates.pop("without an emit"))
    report.add("emit", f"{_CLIENTS} clients without an emit", base, "commits/s")
    for way, bar in (("bell off", 0.95), ("relay busy", 0.85), ("relay asleep", None)):
        rate = statistics.median(rates[way])
        report.add("emit", f"with an emit, {way}", rate, "commits/s")
        report.add("emit", f"with an emit, {way}, share of those without", rate / base, "x", bar=bar)
    _dead(place, report)


def _dead(place: Place, report: Report) -> None:
    with place.connect() as conn:
        conn.execute("SELECT pg_stat_force_next_flush()")
        row = conn.execute(
            "SELECT sum(n_tup_upd + n_tup_del)::float8, sum(n_tup_ins)::float8 FROM pg_stat_user_tables "
            "WHERE schemaname = %s AND relname LIKE 'event\\_2%%'",
            (place.schema,),
        ).fetchone()
    if row is not None and row[1]:
        report.add("emit", "dead rows in the log for an event", row[0] / row[1], "rows", bar=0, better="lower")


@contextmanager
def _rest(_place: Place) -> Generator[None]:
    yield


@contextmanager
def _relaying(place: Place) -> Generator[None]:
    with children() as start:
        relay = start("relay", place)
        relay.wait_ready()
        yield
        relay.result(stop=True)


@contextmanager
def _sleeping(place: Place) -> Generator[None]:
    with contextlib.closing(place.connect()) as conn:
        number = conn.execute("SELECT 'queue'::regclass::oid::bigint").fetchone()
        assert number is not None
        conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(f"samecommit_event_{number[0]}")))
        conn.execute("SELECT take_bell(64)")
        yield
