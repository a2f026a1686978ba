import json
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from tests.support.engine import run, set_session

BACKEND = "SELECT pg_backend_pid(), backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"


def expire(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    set_session(conn)  # the plan of a worker's session is what counts
    return run(conn, "chore/expire_workers")


def register(conn: psycopg.Connection[Any], lease_id: int, age: str, *backends: tuple[int, str]) -> None:
    conn.execute(
        "INSERT INTO samecommit.worker (lease_id, expires_at, pid, concurrency, host, version, queues, kinds, backends)"
        " VALUES (%s, clock_timestamp() - %s::interval, 1, 1, 'h', '0', '{}', '{}', %s)",
        (lease_id, age, json.dumps([{"pid": pid, "backend_start": start} for pid, start in backends])),
    )


@pytest.mark.pg15
@pytest.mark.session("connections of its own")
def test_only_the_backends_of_a_dead_worker_are_ended(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn, autocommit=True) as stuck, psycopg.connect(dsn, autocommit=True) as bystander:
        named, innocent = stuck.execute(BACKEND).fetchone(), bystander.execute(BACKEND).fetchone()
        assert named is not None
        assert innocent is not None
        # the bystander's number with another start: what a number is worth once its process is gone
        register(conn, 7, "1 s", named, (innocent[0], "2000-01-01 00:00:00+00"))
        assert expire(conn) == [(7, "h", 1, 1)]
        with pytest.raises(pg.AdminShutdown):
            stuck.execute("SELECT 1")
        assert bystander.execute("SELECT 1").fetchone() == (1,)


def test_a_worker_whose_lease_is_alive_is_left_alone(dsn: str, conn: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn, autocommit=True) as living:
        named = living.execute(BACKEND).fetchone()
        assert named is not None
        register(conn, 7, "-1 hour", named)
        assert expire(conn) == []
        assert living.execute("SELECT 1").fetchone() == (1,)


def test_the_one_who_looks_does_not_end_itself(conn: psycopg.Connection[Any]) -> None:
    own = conn.execute(BACKEND).fetchone()
    assert own is not None
    register(conn, 7, "1 s", own)
    assert expire(conn) == [(7, "h", 1, 0)]
