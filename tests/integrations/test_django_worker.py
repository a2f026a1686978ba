"""Plain functions that use Django's connections in a worker's threads."""

from typing import Any

import psycopg
import pytest
from tests.integrations.test_django_buffer import django_conn
from tests.support.jobs import Jobs
from tests.support.workers import running_worker

from samecommit import App

__all__ = ["django_conn"]


@pytest.mark.session("connections of its own")
@pytest.mark.usefixtures("django_conn")
async def test_a_thread_s_connection_that_the_server_ended_fails_no_more_than_one_attempt(
    app: App, jobs: Jobs, conn: psycopg.Connection[Any]
) -> None:
    @app.task(max_attempts=3)
    def ask() -> int:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    async with running_worker(app, concurrency=1, threads=1):
        pids: list[int] = []
        for _ in range(3):
            row = await jobs.ended(app.enqueue(ask.job()).id)
            pids.append(row["result"])
            conn.execute("SELECT pg_terminate_backend(%s, 5000)", [pids[-1]])
            assert row["attempts"] <= 1
    assert len(set(pids)) == 3
