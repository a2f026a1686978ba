"""Hot statements at the depth that is promised: 10 million jobs in line, 10 million for later, 10 million in the history.

The tables are built once, on disk: about 12 GB and a quarter of an hour. ``SAMECOMMIT_DEPTH_ROWS`` asks for fewer.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.plans.hot import Hot, Session, check, each_hot_statement, fill, history
from tests.support.database import SETTINGS, Database

from samecommit.embedded import EmbeddedServer

ROWS = int(os.environ.get("SAMECOMMIT_DEPTH_ROWS", "10_000_000"))
# An index of ten million rows is a level higher than one of 300,000, for which the limits are given.
HIGHER = 1.5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    place: Path = tmp_path_factory.mktemp("deep")
    settings = {**SETTINGS, "shared_buffers": "512MB", "max_wal_size": "8GB", "synchronous_commit": "off"}
    database = Database(EmbeddedServer(place / "server", settings=settings).start())
    try:
        with history(database, fill(ROWS, later=ROWS, ended=ROWS)) as session:
            yield session
    finally:
        database.close()
        shutil.rmtree(place)


def test_so_many_rows_are_there(deep: Session) -> None:
    def count(table: str, where: str) -> int:
        row = deep.conn.execute(f"SELECT count(*) FROM samecommit.{table} WHERE {where}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    deep.conn.execute("SET statement_timeout = 0")
    assert count("job", "pos IS NOT NULL") == count("job", "pos IS NULL AND state = 'ready'") == ROWS
    assert count("job_history", "true") == ROWS
    deep.conn.execute("RESET statement_timeout")


@each_hot_statement
def test_a_hot_statement_costs_the_same_at_depth(deep: Session, hot: Hot) -> None:
    check(hot, deep.explain(hot, {**hot.empty, **hot.full}), int(hot.buffers * HIGHER))
