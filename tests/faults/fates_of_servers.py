"""What may be done to the server: it crashes, restarts, is full, locked, read-only, impatient, pinned and swept."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
from tests.faults.fates import Steps, fate
from tests.faults.locks import LANDED, UNCLAIMED, enqueue_locked, lock_running, those_that_worked
from tests.support.history import Line

if TYPE_CHECKING:
    from tests.faults.storm import Storm

_numbers = itertools.count()


def _restarts(storm: Storm, line: Line, how: Callable[[], None]) -> Steps:
    line["is_down"] = True
    how()
    line["until"] = storm.arena.wait_until_up()
    yield 0
    return 1


@fate("crash", alone="server", is_rare=True)
def crash(storm: Storm, line: Line) -> Steps:
    """Immediate shutdown and recovery."""
    return (yield from _restarts(storm, line, lambda: storm.arena.server.restart("immediate")))


@fate("fast restart", alone="server", is_rare=True)
def fast_restart(storm: Storm, line: Line) -> Steps:
    """A clean restart under everybody."""
    return (yield from _restarts(storm, line, lambda: storm.arena.server.restart("fast")))


@fate("killed backend", alone="server", is_rare=True)
def killed_backend(storm: Storm, line: Line) -> Steps:
    """SIGKILL of one backend: the server ends all others and recovers."""
    rows = storm.ask(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'samecommit %'"
    )
    if not rows:
        return 0

    def kill() -> None:
        os.kill(int(storm.rng.choice(rows)[0]), signal.SIGKILL)
        time.sleep(0.1)  # until the postmaster has seen it

    return (yield from _restarts(storm, line, kill))


def _holds(storm: Storm, line: Line, statements: list[str], seconds: float) -> Steps:
    """Keep a transaction open in which this was said; how many of our statements waited for it."""
    try:
        with psycopg.connect(storm.dsn, connect_timeout=5, application_name="stranger") as conn:
            for statement in ("SET LOCAL lock_timeout = '3s'", *statements):
                conn.execute(statement.encode())
            yield seconds
            waiting = storm.ask(
                "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", [conn.info.backend_pid]
            )
            return int(waiting[0][0]) if waiting else 0
    except psycopg.Error:
        return 0


@fate("locked table", alone="server", is_rare=True)
def locked_table(storm: Storm, line: Line) -> Steps:
    """ACCESS EXCLUSIVE on the table of jobs."""
    line["is_down"] = True
    return (yield from _holds(storm, line, ["LOCK TABLE samecommit.job IN ACCESS EXCLUSIVE MODE"], 2.5))


@fate("locked leases", alone="server", is_rare=True)
def locked_leases(storm: Storm, line: Line) -> Steps:
    """ACCESS EXCLUSIVE on the leases, for less than one."""
    line["is_down"] = True
    statement = "LOCK TABLE samecommit.worker IN ACCESS EXCLUSIVE MODE"
    return (yield from _holds(storm, line, [statement], storm.plan.lease * 0.5))


@fate("locked rows", alone="server", is_rare=True)
def locked_rows(storm: Storm, line: Line) -> Steps:
    """A stranger's locks on jobs in line, which claims pass over, and on jobs that run, whose ends wait and land."""
    line["is_down"] = True
    try:
        with psycopg.connect(storm.dsn, connect_timeout=5, application_name="stranger") as conn:
            in_line = enqueue_locked(conn, storm.folder, f"locked_{next(_numbers)}", 10)
            running = lock_running(conn, 50)
            yield 2.0
            waiting = those_that_worked(conn, running)
    except psycopg.Error:
        return 0
    line["until"], until = time.time(), time.monotonic() + 30
    while (landed := storm.ask(LANDED, waiting)) != [(len(waiting[0]),)] and time.monotonic() < until:
        yield 0.2
    while (left := storm.ask(UNCLAIMED, [in_line])) != [(0,)] and time.monotonic() < until:
        yield 0.2
    if left != [(0,)]:
        storm.complain(f"of jobs in line that had been locked these were not claimed within 30 s: {left}")
    return int(landed[0][0]) if landed and in_line else 0


@fate("pinned horizon", alone="pin", is_rare=True)
def pinned_horizon(storm: Storm, line: Line) -> Steps:
    """An idle REPEATABLE READ transaction, ten seconds."""
    try:
        with psycopg.connect(storm.dsn, connect_timeout=5, application_name="stranger") as conn:
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            conn.execute("SELECT count(*) FROM samecommit.queue")
            yield 10.0
            pid = conn.info.backend_pid
            return len(storm.ask("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND backend_xmin IS NOT NULL", [pid]))
    except psycopg.Error:
        return 0


@fate("no connection left", alone="server", is_rare=True)
def no_connection_left(storm: Storm, line: Line) -> Steps:
    """Strangers take every connection there is, and two of ours end."""
    line["is_down"] = True
    idle: list[psycopg.Connection[Any]] = []
    refused = 0
    try:
        while not refused and len(idle) < 200:
            try:
                idle.append(psycopg.connect(storm.dsn, connect_timeout=5, application_name="stranger"))
            except psycopg.OperationalError:
                refused = 1
        for link in ("claim", "finish"):
            with contextlib.suppress(psycopg.OperationalError):
                storm.arena.admin(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    f"WHERE application_name = 'samecommit {link}' LIMIT 1"
                )
        yield 2.0
    finally:
        for conn in idle:
            conn.close()
    return refused


def _set(storm: Storm, line: Line, settings: list[str], see: str, expected: str) -> Steps:
    """Let new sessions of everybody have these settings for a while, and end the producers' and some of ours."""
    name = storm.database
    try:
        for setting in settings:
            storm.arena.admin(f"ALTER DATABASE {name} SET {setting}")
        storm.arena.admin(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'producer' "
            f"OR (datname = '{name}' AND application_name LIKE 'samecommit %' AND pid % 3 = 0)"
        )
    except psycopg.OperationalError:
        return 0
    yield 2.0
    try:
        # without the patience that the other looks at a storm bring with them
        with psycopg.connect(storm.plain_dsn, connect_timeout=5, application_name="stranger") as conn:
            seen = conn.execute(see.encode()).fetchone()
            return int(seen == (expected,))
    except psycopg.Error:
        return 1  # it was refused or cancelled, as the setting asks
    finally:
        storm.arena.admin(f"ALTER DATABASE {name} RESET ALL")
        storm.arena.admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'producer'")


@fate("statement timeout", alone="server", is_rare=True)
def statement_timeout(storm: Storm, line: Line) -> Steps:
    """The database's own settings have no patience."""
    settings = ["statement_timeout = '2ms'", "lock_timeout = '1ms'", "idle_in_transaction_session_timeout = '5ms'"]
    return (yield from _set(storm, line, settings, "SHOW statement_timeout", "2ms"))


@fate("read-only", alone="server", is_rare=True)
def read_only(storm: Storm, line: Line) -> Steps:
    """The database's own settings allow no write."""
    settings = ["default_transaction_read_only = on", "default_transaction_isolation = 'serializable'"]
    return (yield from _set(storm, line, settings, "SHOW transaction_read_only", "on"))


@fate("storm of vacuums", alone="server", is_rare=True)
def storm_of_vacuums(storm: Storm, line: Line) -> Steps:
    """Autovacuum each second, of tables with one dead row, without delay."""
    eager = {
        "autovacuum_naptime": "1s", "autovacuum_vacuum_threshold": "1", "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_analyze_threshold": "1", "autovacuum_analyze_scale_factor": "0", "autovacuum_vacuum_cost_delay": "0",
    }  # fmt: skip
    count = "SELECT coalesce(sum(autovacuum_count + autoanalyze_count), 0) FROM pg_stat_all_tables"
    try:
        before = storm.ask(count)
        for name, value in eager.items():
            storm.arena.admin(f"ALTER SYSTEM SET {name} = '{value}'")
        storm.arena.admin("SELECT pg_reload_conf()")
        yield 6.0
        after = storm.ask(count)
        return int(after[0][0] - before[0][0]) if before and after else 0
    except psycopg.OperationalError:
        return 0
    finally:
        for name in eager:
            storm.arena.admin(f"ALTER SYSTEM RESET {name}")
        storm.arena.admin("SELECT pg_reload_conf()")
