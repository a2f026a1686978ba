"""What may be done to a connection: reset, ended, cancelled, frozen, silent, slow, or cut around a commit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.faults.fates import Steps, fate
from tests.faults.proxy import Pair
from tests.support.history import Line

if TYPE_CHECKING:
    from tests.faults.storm import Storm

LINKS = ("claim", "finish", "heartbeat", "chores", "listen", "bell")


def app_of(link: str) -> str:
    """How a connection is called."""
    return link if link == "producer" else f"samecommit {link}"


def _cut(link: str) -> None:
    @fate(f"reset of {link}")
    def play(storm: Storm, line: Line) -> Steps:
        pairs = [pair for pair in storm.proxy.pairs if pair.app == app_of(link)]
        if not pairs:
            return 0
        storm.proxy.reset(storm.rng.choice(pairs))
        yield 0
        return 1


for name in (*LINKS, "handler", "producer"):
    _cut(name)


def _hits(storm: Storm, how: str) -> Steps:
    apps = [app_of(link) for link in (*LINKS, "handler", "producer")]
    rows = storm.ask(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = ANY (%s) "
        "AND (%s OR state = 'active')", [apps, how == "terminate"],
    )  # fmt: skip
    if not rows:
        return 0
    hit = storm.ask(f"SELECT pg_{how}_backend(%s)", [storm.rng.choice(rows)[0]])
    yield 0
    return sum(bool(row[0]) for row in hit)


@fate("terminated backend")
def terminated_backend(storm: Storm, line: Line) -> Steps:
    """pg_terminate_backend of any of our connections."""
    return (yield from _hits(storm, "terminate"))


@fate("cancelled query")
def cancelled_query(storm: Storm, line: Line) -> Steps:
    """pg_cancel_backend of whatever runs just now."""
    return (yield from _hits(storm, "cancel"))


def _cut_around(name: str, side: str, link: str, is_it: Callable[[bytes], bool]) -> None:
    @fate(name, alone=side)
    def play(storm: Storm, line: Line) -> Steps:
        cuts = 0

        def cut(pair: Pair, data: bytes) -> bool:
            nonlocal cuts
            if cuts or pair.app != app_of(link) or not is_it(data):
                return False
            cuts += 1
            return True

        setattr(storm.proxy, side, cut)
        until = time.monotonic() + 10
        yield 0.02
        while not cuts and time.monotonic() < until:
            yield 0.05
        setattr(storm.proxy, side, lambda pair, data: False)
        return cuts


_cut_around("commit cut before", "before", "producer", lambda data: b"COMMIT" in data)
_cut_around("commit cut after", "after", "producer", lambda data: b"COMMIT" in data)
_cut_around("end cut before", "before", "finish", lambda data: len(data) > 200)
_cut_around("end cut after", "after", "finish", lambda data: len(data) > 200)
_cut_around("claim cut after", "after", "claim", lambda data: True)


def _falls_silent(link: str) -> None:
    @fate(f"silent {link}")
    def play(storm: Storm, line: Line) -> Steps:
        pairs = [pair for pair in storm.proxy.pairs if pair.app == app_of(link)]
        if not pairs:
            return 0
        pair = storm.rng.choice(pairs)
        pair.is_silent = True
        began = time.monotonic()
        yield 0.1
        while pair in storm.proxy.pairs and time.monotonic() - began < 40:
            yield 0.1
        line["noticed"] = time.monotonic() - began
        if pair in storm.proxy.pairs:
            storm.complain(f"a silent {link} connection was not noticed within 40 s")
        return 1


for name in ("claim", "finish", "heartbeat", "listen"):
    _falls_silent(name)


@fate("slow network", alone="slow", is_rare=True)
def slow_network(storm: Storm, line: Line) -> Steps:
    """Each packet takes 100 ms for a while."""
    before = storm.proxy.delayed
    storm.proxy.delay_seconds = 0.1
    yield 4.0
    storm.proxy.delay_seconds = 0.0
    return storm.proxy.delayed - before


@fate("frozen backend", alone="server", is_rare=True)
def frozen_backend(storm: Storm, line: Line) -> Steps:
    """SIGSTOP of a backend in the server, with whatever locks it has."""
    rows = storm.ask(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'samecommit %'"
    )
    if not rows:
        return 0
    pid = int(storm.rng.choice(rows)[0])
    line["is_down"] = True  # whoever waits for a lock of it waits with it
    thaw = threading.Timer(2.5, _go_on, [pid])  # a thread: whoever plays fate may have to wait for it, too
    os.kill(pid, signal.SIGSTOP)
    thaw.start()
    yield 2.6
    thaw.join()
    return 1


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@fate("deaf workers", is_rare=True)
def deaf_workers(storm: Storm, line: Line) -> Steps:
    """Every listener and every doorbell ended, again and again."""
    count = 0
    for _ in range(6):
        rows = storm.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name IN ('samecommit listen', 'samecommit bell')"
        )
        count += len(rows)
        yield 0.5
    return count


@fate("strangers' notifications")
def strangers_notifications(storm: Storm, line: Line) -> Steps:
    """Two thousand notifications on the workers' own channel, with what no worker ever sends."""
    rows = storm.ask(
        "SELECT pg_notify('samecommit_' || 'samecommit.queue'::regclass::oid, x || repeat('\\', 50)) "
        "FROM generate_series(1, 2000) AS n CROSS JOIN LATERAL (SELECT CASE n % 3 WHEN 0 THEN n::text WHEN 1 THEN '' ELSE 'é' || n END) AS t (x)"
    )
    if not rows:
        return 0
    yield 0
    return len(rows)
