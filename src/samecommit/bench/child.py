"""The processes under test: ``python -m samecommit.bench.child ROLE JSON``. Each prints one JSON line at its end.

A worker runs until its standard input is closed, or until it has ended ``expect`` jobs. Times are CLOCK_MONOTONIC in
nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from samecommit import App, RateLimited, Retry, Task, WorkerConfig
from samecommit.bench.loop import run_loop, stop_at_eof
from samecommit.bench.place import PAYLOAD
from samecommit.signals import JobsClaimed, JobsEnded, Signal


@dataclass(slots=True)
class Measured:
    """The application under test, and what its handlers saw: (n, start) pairs, and times of attempts."""

    app: App
    noop: Task[[int, str, str], None]
    stamp: Task[[int], None]
    starts: list[tuple[int, int]]
    attempts: list[int]


def make_app(options: dict[str, Any]) -> Measured:
    """Return an application with the tasks that are measured."""
    app = App(options["dsn"], schema=options["schema"])
    starts: list[tuple[int, int]] = []
    attempts: list[int] = []

    @app.task()
    async def noop(submission_id: int, email: str, note: str) -> None: ...

    @app.task()
    async def stamp(n: int) -> None:
        starts.append((n, time.monotonic_ns()))

    @app.task()
    async def nap(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @app.task(max_attempts=1000)
    async def depend(n: int) -> None:  # noqa: ARG001 - the payload is part of what is measured
        attempts.append(time.monotonic_ns())
        await asyncio.sleep(0.01)
        is_down = os.path.exists(options["switch"])  # noqa: ASYNC240, PTH110 - one stat
        if is_down and options.get("answers", "error") == "error":
            raise Retry(reason="the dependency is down")
        if is_down:
            raise RateLimited(1.0)

    @app.task()
    async def large(body: str) -> None: ...

    return Measured(app, noop, stamp, starts, attempts)


def work(options: dict[str, Any]) -> dict[str, Any]:
    """Run a worker and return what it did."""
    measured = make_app(options)
    app = measured.app
    seen = {"done": 0, "first": 0, "last": 0, "claimed": 0, "refused": 0}
    expect = options.get("expect") or 0
    per_second: dict[int, int] = {}

    async def main() -> None:
        loop = asyncio.get_running_loop()
        worker = app.worker(WorkerConfig(**options.get("config", {})))

        def heard(signal: Signal) -> None:
            now = time.monotonic_ns()
            match signal:
                case JobsEnded(done=done, refused=refused):
                    seen["done"] += done
                    seen["refused"] += refused
                    seen["last"] = now if done else seen["last"]
                    second = now // 1_000_000_000
                    per_second[second] = per_second.get(second, 0) + done
                    if expect and seen["done"] >= expect:
                        worker.stop()
                case JobsClaimed(count=count):
                    seen["first"] = seen["first"] or now
                    seen["claimed"] += count
                case _:
                    pass

        app.signals.subscribe(heard)
        threading.Thread(target=stop_at_eof, args=(loop, worker), daemon=True).start()
        running = asyncio.create_task(worker.run())
        await worker.started()
        print("ready", flush=True)
        await running

    run_loop(main())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    if options.get("starts"):
        Path(options["starts"]).write_text(json.dumps(measured.starts))
    return {**seen, "cpu": usage.ru_utime + usage.ru_stime, "rss_kb": usage.ru_maxrss, "per_second": per_second,
            "attempts": [n / 1e9 for n in measured.attempts]}  # fmt: skip


def rest(options: dict[str, Any]) -> dict[str, Any]:
    """Run several workers that find nothing to do, in this one process, until standard input is closed."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        workers = [make_app(options).app.worker(WorkerConfig(**options["config"])) for _ in range(options["workers"])]
        threading.Thread(target=stop_at_eof, args=(loop, *workers), daemon=True).start()
        running = [asyncio.create_task(worker.run()) for worker in workers]
        for worker in workers:
            await worker.started()
        print("ready", flush=True)
        await asyncio.gather(*running)

    run_loop(main())
    return {}


def produce(options: dict[str, Any]) -> dict[str, Any]:
    """Enqueue in transactions of ``jobs``, with work after the enqueue, until the time is over; return commit times."""
    app, stamp = (measured := make_app(options)).app, measured.stamp
    rng, n, many = random.Random(options["seed"]), options["seed"] * 10_000_000, options.get("jobs", 1)
    commits: list[tuple[int, int]] = []
    until = time.monotonic() + options["seconds"]
    with psycopg.connect(options["dsn"]) as conn:
        while time.monotonic() < until:
            if many == 1:
                stamp.enqueue(conn, n)
            else:
                app.enqueue_many(conn, [stamp.job(n + more) for more in range(many)])
            if options["work"]:
                time.sleep(rng.random() * options["work"])
            conn.commit()
            at = time.monotonic_ns()
            commits += [(n + more, at) for more in range(many)]
            n += many
            if options["gap"]:
                time.sleep(options["gap"] * (0.5 + rng.random()))
    return {"commits": commits}


def commit(options: dict[str, Any]) -> dict[str, Any]:
    """Commit one job after the other for some seconds, by the library or (``is_bare``) by a bare INSERT; how many."""
    done = 0
    with psycopg.connect(options["dsn"]) as conn:
        once = bare_insert(conn, options["schema"]) if options["is_bare"] else enqueue_one(conn, make_app(options).noop)
        once()
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        while time.monotonic() - began < options["seconds"]:
            once()
            done += 1
        return {"rate": done / (time.monotonic() - began)}


def bare_insert(conn: psycopg.Connection[Any], schema: str) -> Callable[[], None]:
    """Return what stores the row of a job in a transaction of its own, and does nothing else."""
    conn.execute(sql.SQL("SET search_path = {}, pg_catalog").format(sql.Identifier(schema)))
    conn.commit()

    def insert() -> None:
        conn.execute(
            "INSERT INTO job (queue_id, kind, pos, payload) VALUES (1, 'noop', nextval('pos_seq'), %s::jsonb) "
            "RETURNING id",
            (PAYLOAD,),
        ).fetchone()
        conn.commit()

    return insert


def enqueue_one(conn: psycopg.Connection[Any], noop: Task[[int, str, str], None]) -> Callable[[], None]:
    """Return what enqueues the same job in a transaction of its own."""
    note = "x" * 60

    def enqueue() -> None:
        noop.enqueue(conn, 12345, "someone@example.com", note)
        conn.commit()

    return enqueue


def feed(options: dict[str, Any]) -> dict[str, Any]:
    """Offer jobs at a fixed rate, in small inserts, until the time is over; return how many."""
    sent = 0
    with psycopg.connect(options["dsn"], autocommit=True) as conn:
        conn.execute(sql.SQL("SET search_path = {}, pg_catalog").format(sql.Identifier(options["schema"])))
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        while (now := time.monotonic() - began) < options["seconds"]:
            due = int(now * options["rate"]) - sent
            if due > 0:
                conn.execute(
                    "INSERT INTO job (queue_id, kind, pos, payload) "
                    "SELECT 1, 'noop', nextval('pos_seq'), %s::jsonb FROM generate_series(1, %s)",
                    (PAYLOAD, due),
                )
                sent += due
            time.sleep(0.01)
    return {"sent": sent}


ROLES = {"work": work, "rest": rest, "produce": produce, "commit": commit, "feed": feed}

if __name__ == "__main__":
    from samecommit.bench.outbox_child import OUTBOX_ROLES

    print(json.dumps((ROLES | OUTBOX_ROLES)[sys.argv[1]](json.loads(sys.argv[2]))), flush=True)
