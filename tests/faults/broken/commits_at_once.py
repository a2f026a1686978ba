"""A client that commits what it enqueues at once, whatever becomes of its transaction."""

from __future__ import annotations

from typing import Any

import psycopg
from tests.faults import producer


class Producer(producer.Producer):
    """Breaks the promise that a rolled-back job never runs."""

    def _connection(self) -> psycopg.Connection[Any]:
        conn = super()._connection()
        conn.autocommit = True
        return conn
