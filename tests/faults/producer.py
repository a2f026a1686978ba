"""Clients that enqueue and write down what they know of it: what was asked, what was answered, what nobody knows."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from tests.support.history import History

_ENQUEUE = (
    "SELECT e.id FROM unnest(%s::jsonb[]) WITH ORDINALITY AS p (payload, n) "
    "CROSS JOIN LATERAL samecommit.enqueue(%s, p.payload, max_attempts => %s) AS e ORDER BY p.n"
)


class Producer(threading.Thread):
    """Enqueues ``count`` jobs over ``seconds``: single, in groups, one in ten rolled back.

    Args:
        name: begins the keys, as in ``p0-17``.
        longest: of the handlers, seconds.
        kinds: of tasks, drawn from.
        longs: share of handlers that take twenty times as long.
    """

    def __init__(
        self,
        dsn: str,
        folder: Path,
        name: str,
        *,
        count: int,
        seconds: float,
        longest: float,
        seed: int,
        kinds: tuple[str, ...] = ("nap",),
        groups: tuple[int, ...] = (1, 1, 5, 20),
        rollbacks: float = 0.1,
        longs: float = 0.0,
    ) -> None:
        super().__init__(name=f"producer {name}", daemon=True)
        self._dsn, self._count, self._seconds, self._longest, self._kinds = dsn, count, seconds, longest, kinds
        self._groups, self._rollbacks, self._longs = groups, rollbacks, longs
        self._key, self._rng = name, random.Random(f"{seed} {name}")
        self._history = History(folder / f"client-{name}.jsonl")
        self._conn: psycopg.Connection[Any] | None = None
        self.made = 0

    def run(self) -> None:
        """Enqueue until all are kept; a lost connection makes the answer unknown, not wrong."""
        began, number = time.monotonic(), 0
        while self.made < self._count:
            size = min(self._rng.choice(self._groups), self._count - self.made)
            keys = [f"{self._key}-{number + n}" for n in range(size)]
            number += size
            self._enqueue(keys, is_kept=self._rng.random() >= self._rollbacks)
            ahead = self._seconds * self.made / self._count - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
        self._close()

    def _enqueue(self, keys: list[str], *, is_kept: bool) -> None:
        self._history.write("enqueue", type="invoke", keys=keys)
        try:
            conn = self._connection()
            payloads = [f'{{"key": "{key}", "seconds": {self._seconds_of_work():.3f}}}' for key in keys]
            rows = conn.execute(_ENQUEUE, [payloads, self._rng.choice(self._kinds), 50]).fetchall()
        except (psycopg.OperationalError, psycopg.InternalError):
            self._history.write("enqueue", type="fail", keys=keys)  # COMMIT was not sent
            self._close()
            time.sleep(0.1)
            return
        self._end(conn, keys, [row[0] for row in rows], is_kept=is_kept)

    def _seconds_of_work(self) -> float:
        return self._rng.random() * self._longest * (20 if self._rng.random() < self._longs else 1)

    def _end(self, conn: psycopg.Connection[Any], keys: list[str], ids: list[int], *, is_kept: bool) -> None:
        try:
            conn.commit() if is_kept else conn.rollback()
        except (psycopg.OperationalError, psycopg.InternalError):
            self._history.write("enqueue", type="unknown" if is_kept else "fail", keys=keys, ids=ids)
            self._close()
            return
        self._history.write("enqueue", type="ok" if is_kept else "fail", keys=keys, ids=ids)
        self.made += len(keys) if is_kept else 0

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self._dsn, connect_timeout=5, application_name="producer")
        return self._conn

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = None


def enqueue(
    dsn: str,
    folder: Path,
    kind: str,
    count: int = 1,
    seconds: float = 0.0,
    name: str = "one",
    *,
    max_attempts: int = 50,
) -> list[int]:
    """Enqueue at once and write it down; the ids."""
    keys = [f"{name}-{n}" for n in range(count)]
    history = History(folder / f"client-{name}.jsonl")
    history.write("enqueue", type="invoke", keys=keys)
    with psycopg.connect(dsn, connect_timeout=5) as conn:
        payloads = [f'{{"key": "{key}", "seconds": {seconds}}}' for key in keys]
        ids = [row[0] for row in conn.execute(_ENQUEUE, [payloads, kind, max_attempts]).fetchall()]
    history.write("enqueue", type="ok", keys=keys, ids=ids)
    history.close()
    return ids
