"""B04: the schema alone is dumped and restored elsewhere, with its jobs, and works there."""

import subprocess
from typing import Any

import psycopg
import pytest
from tests.support.database import Database
from tests.support.engine import Actor, enqueue
from tests.support.jobs import Jobs

pytestmark = pytest.mark.pg15


def test_b04_a_dump_of_the_schema_alone_restores_and_works(
    server: Database, dsn: str, jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    old = enqueue(jobs, 3)
    dump = [str(server.server.bin_dir / "pg_dump"), "--schema=samecommit", "--no-owner", dsn]
    script = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=60).stdout
    with server.fresh(migrated=False) as elsewhere, psycopg.connect(elsewhere, autocommit=True) as restored:
        psql = [str(server.server.bin_dir / "psql"), "-q", "-v", "ON_ERROR_STOP=1", elsewhere]
        subprocess.run(psql, input=script, text=True, check=True, timeout=60, capture_output=True)
        there = Jobs(restored)
        assert there.count("ready") == 3
        new = enqueue(there, 2)
        assert min(new) > max(old)
        actor = Actor(restored).register()
        assert {job for job, _ in actor.claim()} == {*old, *new}
    assert jobs.count("ready") == 3
