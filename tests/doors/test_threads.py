"""B22d: threads may share one application, since it holds no connection between two calls."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
from tests.support.jobs import Jobs

from samecommit import App


def test_b22d_fifty_threads_share_one_application(app: App, jobs: Jobs, dsn: str) -> None:
    @app.task()
    def greet(name: str) -> None:
        pass

    def enqueue(number: int) -> list[int]:
        alone = app.enqueue(greet.job(f"{number} alone")).id
        with psycopg.connect(dsn) as conn:
            return [alone, greet.enqueue(conn, f"{number} within").id]

    with ThreadPoolExecutor(50) as threads:
        ids = [job_id for pair in threads.map(enqueue, range(50)) for job_id in pair]
    stored = jobs.all("SELECT id, payload->>'name' FROM $.job")
    assert sorted(row[0] for row in stored) == sorted(ids)
    assert {row[1] for row in stored} == {f"{n} {how}" for n in range(50) for how in ("alone", "within")}
