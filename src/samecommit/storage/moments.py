"""Moments that PostgreSQL knows and Python does not: infinity, and what is before the year 1 or after 9999.

A job may hold one (``expires_at => 'infinity'``), and the driver then refuses every row of the answer that it is in, after the
statement has been done. So they are read as the first or last moment that any time zone can show. Only what the driver has refused
is read again this way: its own loader is several times faster, and workers read a few such columns for each job.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq.abc import PGresult
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader

FIRST, LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


class _Text(TimestamptzLoader):
    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return FIRST if text.startswith(b"-") or text.endswith(b"BC") else LAST


class _Binary(TimestamptzBinaryLoader):
    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return FIRST if bytes(data)[0] & 0x80 else LAST


def register(adapters: AdaptersMap) -> None:
    """Let a connection, or whatever has adapters, read such moments."""
    adapters.register_loader("timestamptz", _Text)
    adapters.register_loader("timestamptz", _Binary)


@dataclass(frozen=True, slots=True)
class _Context:
    """What the driver's loaders ask for."""

    adapters: AdaptersMap
    connection: Any


def rows_of(result: PGresult, conn: Any) -> list[tuple[Any, ...]]:
    """Return the rows of an answer in the binary format that the driver could not read."""
    adapters = AdaptersMap(conn.adapters)
    register(adapters)
    transformer = Transformer(_Context(adapters, conn))
    transformer.set_pgresult(result, format=psycopg.pq.Format.BINARY)
    return transformer.load_rows(0, result.ntuples, tuple)
