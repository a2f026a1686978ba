"""Keeps the lease alive from a thread of its own, so that a handler that blocks the event loop does not lose it.

The thread stops beating when the loop has not moved for ``stall_seconds``: hung is dead, and the reaper gives the jobs to
somebody else. A beat that finds no row (or no server for as long as the lease lasts) means that the lease is lost: the
worker stops everything, and the thread registers a new lease. Registration is durable.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import psycopg

from samecommit.clock import Monotonic, monotonic
from samecommit.config import WorkerConfig
from samecommit.faultpoints import FAULTS, hit
from samecommit.signals import CopyFound, ServiceFailed, Signals
from samecommit.storage.link import hang_up
from samecommit.storage.query import statement
from samecommit.storage.session import as_local_statement, as_startup_options, as_writer, session_settings

_ANSWER_SECONDS, _COPY_SECONDS = 8.0, 1.0

_SETTINGS = session_settings(extra={"statement_timeout": "5s", "lock_timeout": "2s"})


class Heartbeat(threading.Thread):
    """The thread.

    Args:
        on_lease: called (in this thread) with each new lease id and the installation.
        on_lost: called (in this thread) with the lease id and the reason; a new lease is taken when `resume` is called.
        is_pooled: whether a transaction pooler stands between.
        vitals: gives (running, state, note, backends) for the worker's row.
    """

    def __init__(
        self,
        dsn: str,
        schema: str,
        config: WorkerConfig,
        signals: Signals,
        *,
        kinds: tuple[str, ...],
        version: str,
        on_lease: Callable[[int, str], None],
        on_lost: Callable[[int, str], None],
        vitals: Callable[[], tuple[int, str, str | None, list[tuple[int, Any]]]],
        is_pooled: Callable[[], bool],
        clock: Monotonic = monotonic,
    ) -> None:
        super().__init__(name="samecommit heartbeat", daemon=True)
        self._dsn, self._schema, self._config, self._signals = dsn, schema, config, signals
        self._kinds, self._version = kinds, version
        self._on_lease, self._on_lost, self._vitals, self._clock = on_lease, on_lost, vitals, clock
        self._is_pooled = is_pooled
        self._conn: psycopg.Connection[Any] | None = None
        self._lease_id: int | None = None
        self._is_copy = False
        self._beaten = 0.0
        self._asked: float | None = None
        self._ended = threading.Event()
        self._may_register = threading.Event()
        self._may_register.set()
        self._now = threading.Event()
        self.loop_moved = clock()

    @property
    def is_overdue(self) -> bool:
        """Whether the lease has run out by this process's own clock, which goes on while the process is stopped."""
        return self._clock() - self._beaten > self._config.lease_seconds

    def run(self) -> None:
        """Register and beat until `finish`."""
        pause = 0.1
        while not self._ended.is_set():
            try:
                wait = self._turn()
                pause = 0.1
            except psycopg.Error as error:
                self._close()
                wait = pause * (0.5 + random.random() / 2)
                pause = min(pause * 2, 2.0)
                self._signals.emit(ServiceFailed(service="heartbeat", error=str(error).strip(), retry_seconds=wait))
            if self._lease_id is not None and self.is_overdue:
                self._lose("the server could not be reached for as long as the lease lasts")
            self._now.wait(wait)
            self._now.clear()
        self._leave()

    def _turn(self) -> float:
        if self._lease_id is None:
            if not self._may_register.is_set():
                return 0.02
            return self._config.heartbeat_seconds if self._register() else _COPY_SECONDS
        if self._clock() - self.loop_moved > self._config.stall_seconds:
            return min(1.0, self._config.heartbeat_seconds)
        return self._config.heartbeat_seconds if self._beat(self._lease_id) else 0.02

    def _register(self) -> bool:
        lease_id = secrets.randbits(63)
        queues = ["*"] if self._config.queues is None else list(self._config.queues)
        began = self._clock()
        rows = self._run(
            "worker/register",
            lease_id=lease_id,
            lease_seconds=self._config.lease_seconds,
            pid=os.getpid(),
            concurrency=self._config.concurrency,
            host=socket.gethostname(),
            version=self._version,
            queues=queues,
            kinds=list(self._kinds),
            backends="[]",
        )
        if not rows:
            self._wait_for_adoption()
            return False
        self._is_copy = False
        self._lease_id, self._beaten = lease_id, began
        self._on_lease(lease_id, rows[0][0])
        return True

    def _wait_for_adoption(self) -> None:
        reason = self._run("worker/place")[0][2]
        if reason is not None and not self._is_copy:
            self._is_copy = True
            self._signals.emit(CopyFound(reason=reason))

    def _beat(self, lease_id: int) -> bool:
        running, state, note, backends = self._vitals()
        own = [] if self._conn is None else [(self._conn.info.backend_pid, None)]
        began = self._clock()
        rows = self._run(
            "worker/beat",
            lease_id=lease_id,
            lease_seconds=self._config.lease_seconds,
            running=running,
            state=state,
            note=note,
            backends=json.dumps([{"pid": pid, "backend_start": str(start)} for pid, start in backends + own if start]),
        )
        if rows:
            self._beaten = began
        else:
            self._lose("the lease had run out before this beat")
        return bool(rows)

    def _lose(self, reason: str) -> None:
        lease_id, self._lease_id = self._lease_id, None
        self._may_register.clear()
        assert lease_id is not None
        self._on_lost(lease_id, reason)

    def resume(self) -> None:
        """Take a new lease: the worker has stopped everything of the old one."""
        self._may_register.set()
        self._now.set()

    def look(self) -> None:
        """Hang up on a server that does not answer; called from the event loop, since the thread itself is waiting."""
        asked, conn = self._asked, self._conn
        if asked is None or conn is None:
            return
        if self._clock() - asked > min(_ANSWER_SECONDS, self._config.lease_seconds):
            hang_up(conn)

    def beat_now(self) -> None:
        """Beat at once."""
        self._now.set()

    def finish(self, timeout_seconds: float = 5.0) -> None:
        """End the lease and the thread."""
        self._ended.set()
        self._now.set()
        if self.is_alive():
            self.join(timeout_seconds)

    def _leave(self) -> None:
        for _ in range(2):  # the connection may have been cut since the last beat
            try:
                if self._lease_id is not None:
                    self._run("worker/leave", lease_id=self._lease_id)
                break
            except psycopg.Error:
                self._close()  # after the second time, the lease runs out by itself
        self._close()

    def _run(self, label: str, **values: Any) -> list[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = self._connect()
        query = statement(label, self._schema)
        if FAULTS:
            hit(f"before {label}")
        self._asked = self._clock()
        try:
            with self._conn.transaction() if self._is_pooled() else nullcontext():
                cursor = psycopg.RawCursor(self._conn)
                if self._is_pooled():
                    cursor.execute(as_local_statement(_SETTINGS))
                cursor.execute(query.text, query.bind(values))
                return cursor.fetchall() if cursor.description else []
        finally:
            self._asked = None

    def _connect(self) -> psycopg.Connection[Any]:
        options: dict[str, Any] = {} if self._is_pooled() else {"options": as_startup_options(_SETTINGS)}
        return psycopg.connect(
            self._dsn,
            autocommit=True,
            application_name="samecommit heartbeat",
            connect_timeout=5,
            keepalives=1,
            keepalives_idle=5,
            tcp_user_timeout=10_000,
            prepare_threshold=None,
            **as_writer(self._dsn),
            **options,
        )

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()
