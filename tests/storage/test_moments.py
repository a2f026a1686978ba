"""Moments that PostgreSQL knows and Python does not are read as the first or the last that any time zone can show."""

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from samecommit.storage.moments import FIRST, LAST, register, rows_of

MOMENTS = {
    "infinity": LAST,
    "-infinity": FIRST,
    "4000-01-01 00:00:00+00 BC": FIRST,
    "12000-01-01 00:00:00+00": LAST,
    "2026-01-02 03:04:05.000006+00": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "1970-01-01 00:00:00+00": datetime(1970, 1, 1, tzinfo=UTC),
}
QUERY = "SELECT said.at FROM unnest(%s::timestamptz[]) WITH ORDINALITY AS said (at, n) ORDER BY n"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/Anchorage"])
@pytest.mark.parametrize("binary", [False, True])
def test_every_moment_can_be_read(conn: psycopg.Connection[Any], zone: str, binary: bool) -> None:
    conn.execute("SELECT set_config('TimeZone', %s, false)", [zone])
    register(conn.adapters)
    rows = conn.execute(QUERY, [list(MOMENTS)], binary=binary).fetchall()
    assert [row[0] for row in rows] == list(MOMENTS.values())


def test_an_answer_that_the_driver_refuses_is_read_again(conn: psycopg.Connection[Any]) -> None:
    cursor = conn.execute(QUERY, [list(MOMENTS)], binary=True)
    with pytest.raises(psycopg.DataError, match="timestamp too large"):
        cursor.fetchall()
    assert cursor.pgresult is not None
    assert rows_of(cursor.pgresult, conn) == [(moment,) for moment in MOMENTS.values()]
