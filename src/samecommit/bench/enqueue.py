"""What it costs to enqueue: one per commit beside a bare INSERT of the same row, alone, at a bell, and in a crowd."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from samecommit.bench.child import bare_insert, enqueue_one, make_app
from samecommit.bench.place import Place
from samecommit.bench.processes import children
from samecommit.bench.report import Report

_PRODUCERS = 8


def one_by_one(place: Place, report: Report, *, seconds: float = 3.0, rounds: int = 3) -> None:
    """One job per commit, in turn with a bare INSERT of the same row: without workers, and while a bell is held."""
    place.renew()
    noop = make_app({"dsn": place.dsn, "schema": place.schema}).noop
    alone: list[float] = []
    bare: list[float] = []
    held: list[float] = []
    beside: list[float] = []
    with psycopg.connect(place.dsn) as conn:
        insert, enqueue = bare_insert(conn, place.schema), enqueue_one(conn, noop)
        for turn in range(rounds):
            report.step(turn / rounds, f"round {turn + 1}")
            bare.append(_rate(seconds, insert))
            alone.append(_rate(seconds, enqueue))
            with _bell_held(place):
                held.append(_rate(seconds, enqueue))
            with _clean(place), children() as start:
                worker = start("work", place, config={})
                worker.wait_ready()
                time.sleep(1.0)  # it falls asleep
                beside.append(_rate(seconds, enqueue))
                worker.result(stop=True)
    floor = statistics.median(bare)
    report.add("enqueue", "bare INSERT, one per commit", floor, "jobs/s")
    for name, rates, bar in (
        ("one per commit", alone, 0.75),
        ("one per commit, a sleeper holds the bell", held, 0.60),
        ("one per commit, one worker, idle at first", beside, 0.60),
    ):
        report.add("enqueue", name, statistics.median(rates), "jobs/s")
        report.add("enqueue", f"{name}, ratio to the bare INSERT", statistics.median(rates) / floor, "x", bar=bar)


def crowd(place: Place, report: Report, *, seconds: float = 5.0, rounds: int = 3) -> None:
    """Eight producers beside a busy worker: commits a second, in turn with bare INSERTs beside the same worker."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds):
        for is_bare in (True, False):
            report.step((turn + 0.5 * (not is_bare)) / rounds, f"round {turn + 1}, {'bare' if is_bare else 'enqueue'}")
            rates[is_bare].append(_crowd(place, seconds, is_bare=is_bare))
    ours, bare = statistics.median(rates[False]), statistics.median(rates[True])
    name = f"{_PRODUCERS} producers beside a busy worker"
    report.add("enqueue", f"{name}, bare INSERT", bare, "commits/s")
    report.add("enqueue", name, ours, "commits/s")
    report.add("enqueue", f"{name}, ratio to the bare INSERT", ours / bare, "x", bar=0.85)


def _crowd(place: Place, seconds: float, *, is_bare: bool) -> float:
    place.renew()
    with children() as start:
        worker = start("work", place, config={})
        worker.wait_ready()
        producers = [start("commit", place, seconds=seconds, is_bare=is_bare) for _ in range(_PRODUCERS)]
        for producer in producers:
            producer.wait_ready()
        for producer in producers:
            producer.begin()
        rate = sum(producer.result()["rate"] for producer in producers)
        worker.result(stop=True)
    return float(rate)


@contextmanager
def _bell_held(place: Place) -> Generator[None]:
    """Hold the bell of queue 1 and never wake: each enqueue notifies, and nothing else happens."""
    with place.connect() as conn:
        taken = conn.execute("SELECT take_bell(1)").fetchone()
        assert taken == (True,), "somebody else holds the bell"
        yield


@contextmanager
def _clean(place: Place) -> Generator[None]:
    """Empty the line before a worker comes, since what others left in it is not measured."""
    with place.connect() as conn:
        conn.execute(sql.SQL("TRUNCATE job"))
    yield


def _rate(seconds: float, once: Callable[[], None]) -> float:
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        once()
        count += 1
    return count / spent
