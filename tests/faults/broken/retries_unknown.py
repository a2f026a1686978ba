"""A client that enqueues again when it does not know whether its commit happened, without a key."""

from __future__ import annotations

from typing import Any

import psycopg
from tests.faults import producer


class Producer(producer.Producer):
    """Makes two jobs of one."""

    def _end(self, conn: psycopg.Connection[Any], keys: list[str], ids: list[int], *, is_kept: bool) -> None:
        super()._end(conn, keys, ids, is_kept=is_kept)
        if is_kept and conn.closed:
            self._enqueue(keys, is_kept=True)
