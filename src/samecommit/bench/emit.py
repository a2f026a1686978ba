"""What an emit costs the transactions of an application: its commits a second without and with one, by pgbench."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from psycopg import sql

from samecommit.bench.pgbench import Pgbench
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_CLIENTS = 16
_BASE = """\\set id random(1, 100000)
BEGIN;
UPDATE lead SET note = note WHERE id = :id;
{event}END;
"""
_INSERT = "INSERT INTO plain (type, key, data) VALUES ('lead.created', (:id)::text, '{\"id\": 1}') RETURNING number;\n"
_EMIT = "SELECT number FROM emit('lead.created', '{\"id\": 1}', (:id)::text);\n"
_OFF = {"samecommit.doorbell": "off"}
_SLOW = {"commit_delay": "5000", "commit_siblings": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One kind of transaction; ``bar`` is for its share of those without an event."""

    name: str
    event: str = _EMIT
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: Callable[[Place], AbstractContextManager[None]]
    bar: float | None = None


def emit_cost(place: Place, report: Report, *, seconds: int = 10, rounds: int = 3) -> None:
    """An UPDATE and its commit by 16 clients, in turn without an event, with a bare INSERT of one, and with an emit.

    The bare INSERT, into a table of its own with one index, is what every outbox pays. With an emit: the bell switched off;
    switched on while nobody sleeps; beside a relay, which is busy then; and while somebody sleeps at the bell and never wakes,
    so that every commit notifies: the worst that can be. Then as on a disk that takes 5 ms to flush, where clients wait for
    their commits and not for the processors.
    """
    place.renew()
    with place.connect() as conn:
        conn.execute(sql.SQL("CREATE TABLE lead (id int PRIMARY KEY, note text NOT NULL)"))
        conn.execute("INSERT INTO lead SELECT n, 'x' FROM generate_series(1, 100000) AS n")
        conn.execute(
            "CREATE TABLE plain (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL "
            "DEFAULT gen_random_uuid(), created_at timestamptz NOT NULL DEFAULT now(), type text NOT NULL, key text, data jsonb)"
        )
        conn.execute("VACUUM ANALYZE lead")
    _compare(place, report, {}, "", seconds, rounds)
    _dead(place, report)
    if place.ask(sql.SQL("SELECT current_setting('is_superuser')")) == "on":
        _compare(place, report, _SLOW, ", flush of 5 ms", seconds, rounds)
    else:
        report.add("emit", "flush of 5 ms: not measured", None, "x", note="commit_delay is a superuser's setting")


def _compare(place: Place, report: Report, settings: Mapping[str, str], suffix: str, seconds: int, rounds: int) -> None:
    without = _Way(name="without an event", event="", beside=_rest)
    bare = _Way(name="with a bare INSERT", event=_INSERT, beside=_rest)
    emits = (
        _Way(name="with an emit, bell off", settings=_OFF, beside=_rest, bar=0.95),
        _Way(name="with an emit, nobody asleep", beside=_rest),
        _Way(name="with an emit, relay busy", beside=_relaying, bar=0.75),
        _Way(name="with an emit, relay asleep", beside=_sleeping),
    )
    ways = (without, bare, *emits)
    pgbench, script = Pgbench(place), place.folder / "emit.sql"
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    for turn in range(rounds):
        for n, way in enumerate(ways):
            report.step((turn + n / len(ways)) / rounds, f"round {turn + 1}, {way.name}{suffix}")
            script.write_text(_BASE.format(event=way.event))
            with way.beside(place):
                rates[way.name].append(
                    pgbench.commits(script, seconds, clients=_CLIENTS, settings={**settings, **way.settings})
                )
    rate = {name: statistics.median(found) for name, found in rates.items()}
    for way in ways:
        report.add("emit", f"{way.name}{suffix}", rate[way.name], "commits/s")
    for way in (bare, *emits):
        name = f"{way.name}{suffix}, share of those without"
        report.add("emit", name, rate[way.name] / rate[without.name], "x", bar=way.bar)
    for way in emits:
        report.add("emit", f"{way.name}{suffix}, share of the bare INSERT", rate[way.name] / rate[bare.name], "x")


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
