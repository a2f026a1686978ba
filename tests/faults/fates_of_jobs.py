"""What jobs may do to their worker, and what producers and operators may do to jobs."""

from __future__ import annotations

import itertools
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
from tests.faults.fates import Steps, fate
from tests.faults.producer import enqueue
from tests.support.history import History, Line

if TYPE_CHECKING:
    from tests.faults.storm import Storm

_numbers = itertools.count()
_STATES = """SELECT state, attempts, crashes FROM samecommit.job WHERE id = ANY (%s)
UNION ALL SELECT state, attempts, crashes FROM samecommit.job_history WHERE id = ANY (%s)"""


def _sent(storm: Storm, kind: str, count: int, seconds: float = 0.0, most: int = 50) -> list[int]:
    """Enqueue jobs that are told in the history like any other."""
    name = f"{kind}_{next(_numbers)}"
    try:
        return enqueue(storm.dsn, storm.folder, kind, count, seconds, name=name, max_attempts=most)
    except psycopg.Error:
        return []


def _until_over(storm: Storm, ids: list[int], seconds: float = 60.0) -> Steps:
    """Wait until they have ended or are held; how many failed at least once."""
    until = time.monotonic() + seconds
    rows: list[tuple[Any, ...]] = []
    yield 0.2
    while time.monotonic() < until:
        rows = storm.ask(_STATES, [ids, ids])
        if rows and all(state != "ready" for state, _, _ in rows):
            break
        yield 0.5
    return sum(attempts > 0 or crashes > 0 for _, attempts, crashes in rows)


def _misbehaves(
    name: str, kind: str, count: int, seconds: float = 0.0, most: int = 50, *, is_rare: bool = False
) -> None:
    @fate(name, alone=name, is_rare=is_rare)
    def play(storm: Storm, line: Line) -> Steps:
        ids = _sent(storm, kind, count, seconds, most)
        return (yield from _until_over(storm, ids)) if ids else 0


_misbehaves("handler raises", "stumble", 20)
_misbehaves("handler raises anything", "outburst", 9)
_misbehaves("handler raises SystemExit", "leave", 2, most=3)
_misbehaves("handler raises KeyboardInterrupt", "interrupt", 2, most=3)
_misbehaves("handler outlives its timeout", "linger", 3)
_misbehaves("handler returns what cannot be stored", "hoard", 4)
_misbehaves("handler raises 5 MB", "shout", 1)
_misbehaves("handler segfaults", "crash", 1, most=6, is_rare=True)
_misbehaves("handler ends its process", "vanish", 1, most=6, is_rare=True)


@fate("handler blocks the loop", alone="block")
def blocks(storm: Storm, line: Line) -> Steps:
    """An async handler sleeps without await for longer than the lease."""
    ids = _sent(storm, "block", 1, storm.plan.lease + 1.0)
    if not ids:
        return 0
    yield from _until_over(storm, ids)
    return 1


_REFUSED = ('{"key": "\\u0000"}', '{"key": "\\ud800"}', '{"key": NaN}', '{"key": ' + "[" * 60_000)

_UNFIT: tuple[dict[str, Any], ...] = ({"wrong": 1}, {"seconds": "x"}, {"seconds": 10**300, "deep": [[[]]] * 50})


@fate("poison payloads")
def poison_payloads(storm: Storm, line: Line) -> Steps:
    """What JSON or PostgreSQL cannot hold is refused; what no handler takes fails by itself."""
    name = f"poison_{next(_numbers)}"
    history = History(storm.folder / f"client-{name}.jsonl")
    refused, ids = 0, []
    try:
        with psycopg.connect(storm.dsn, autocommit=True, connect_timeout=5, application_name="stranger") as conn:
            for text in _REFUSED:
                try:
                    conn.execute("SELECT id FROM samecommit.enqueue('nap', %s::jsonb)", [text])
                except (
                    psycopg.DataError,
                    psycopg.errors.RaiseException,
                    psycopg.errors.CheckViolation,
                    psycopg.InternalError,
                ):
                    refused += 1
                except psycopg.errors.StatementTooComplex:
                    refused += 1
            for n, payload in enumerate(_UNFIT):
                key = f"{name}-{n}"
                history.write("enqueue", type="invoke", keys=[key])
                row = conn.execute(
                    "SELECT id FROM samecommit.enqueue('nap', %s::jsonb, max_attempts => 2)",
                    [json.dumps({"key": key, **payload})],
                ).fetchone()
                assert row is not None
                ids.append(row[0])
                history.write("enqueue", type="ok", keys=[key], ids=[row[0]])
    except psycopg.OperationalError:
        return 0
    finally:
        history.close()
    if refused < len(_REFUSED):
        storm.complain(f"{len(_REFUSED) - refused} of {len(_REFUSED)} poison payloads were taken")
    failed = yield from _until_over(storm, ids)
    return refused + failed


@fate("unknown kind")
def unknown_kind(storm: Storm, line: Line) -> Steps:
    """Jobs at the head of the line that no worker knows; cancelled after a while."""
    ids = _sent(storm, "nobodys", 5)
    if not ids:
        return 0
    yield 3.0
    until, cancelled = time.monotonic() + 30, 0
    while time.monotonic() < until:
        storm.ask("SELECT samecommit.cancel(id) FROM unnest(%s::bigint[]) AS id", [ids])
        cancelled = sum(state == "cancelled" for state, _, _ in storm.ask(_STATES, [ids, ids]))
        if cancelled == len(ids):
            break
        yield 0.5
    return cancelled


@fate("rival unique keys")
def rival_unique_keys(storm: Storm, line: Line) -> Steps:
    """Two sessions enqueue the same keys in opposite order: one job for each key, and no deadlock."""
    name = f"unique_{next(_numbers)}"
    keys = [f"{name}-{n}" for n in range(30)]
    created: list[bool] = []

    def push(order: list[str], who: str) -> None:
        history = History(storm.folder / f"client-{name}{who}.jsonl")
        history.write("enqueue", type="invoke", keys=order)
        jobs = [
            {
                "kind": "nap",
                "payload": {"key": key, "seconds": 0.0},
                "unique_key": key,
                "max_attempts": 50,
                "delay": "10 s",
            }
            for key in order
        ]
        try:
            with psycopg.connect(storm.dsn, connect_timeout=5, application_name="stranger") as conn:
                rows = conn.execute(
                    "SELECT id, created FROM samecommit.enqueue_many(%s::jsonb)", [json.dumps(jobs)]
                ).fetchall()
            history.write("enqueue", type="ok", keys=order, ids=[row[0] for row in rows])
            created.extend(row[1] for row in rows)
        except psycopg.errors.DeadlockDetected:
            storm.complain("two batches of unique keys met in a deadlock")
        except psycopg.Error:
            history.write("enqueue", type="unknown", keys=order)

    rivals = [threading.Thread(target=push, args=(keys, "a")), threading.Thread(target=push, args=(keys[::-1], "b"))]
    for rival in rivals:
        rival.start()
    yield 0.1
    while any(rival.is_alive() for rival in rivals):
        yield 0.1
    return sum(not is_new for is_new in created)


@fate("cancelled jobs")
def cancelled_jobs(storm: Storm, line: Line) -> Steps:
    """An operator cancels twenty jobs, waiting and running ones."""
    ids = [row[0] for row in storm.ask("SELECT id FROM samecommit.job WHERE kind = 'nap' ORDER BY id DESC LIMIT 20")]
    if not ids:
        return 0
    told = storm.ask("SELECT samecommit.cancel(id) FROM unnest(%s::bigint[]) AS id", [ids])
    yield 0
    return sum(row[0] in {"cancelled", "asked"} for row in told)


@fate("held jobs")
def held_jobs(storm: Storm, line: Line) -> Steps:
    """An operator puts jobs aside and lets them go on."""
    sent = _sent(storm, "nap", 5, 0.05)
    told = storm.ask("SELECT id, samecommit.hold(id, 'a look') FROM unnest(%s::bigint[]) AS id", [sent]) if sent else []
    if not told:
        return 0
    yield 1.0
    until = time.monotonic() + 30
    while time.monotonic() < until:
        storm.ask("SELECT samecommit.release(id) FROM samecommit.job WHERE id = ANY (%s) AND state = 'held'", [sent])
        if storm.ask("SELECT count(*) FROM samecommit.job WHERE id = ANY (%s) AND state = 'held'", [sent]) == [(0,)]:
            break
        yield 0.5
    return len(told)


@fate("paused queue", alone="all", is_rare=True)
def paused_queue(storm: Storm, line: Line) -> Steps:
    """An operator pauses the queue for two seconds; whoever claims then did not hear."""
    line["is_down"] = True
    if not storm.ask("SELECT samecommit.pause('default', 'a look')::text"):
        return 0
    yield 2.0
    is_paused = storm.ask("SELECT 1 FROM samecommit.queue WHERE paused_at IS NOT NULL")
    until = time.monotonic() + 30
    while time.monotonic() < until and not storm.ask("SELECT samecommit.resume('default')::text"):
        yield 0.2
    return len(is_paused)
