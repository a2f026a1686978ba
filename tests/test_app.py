import psycopg
import pytest

from samecommit import App
from samecommit.errors import UnknownQueue


def test_migrating_makes_the_queues_of_the_tasks_so_that_a_producer_may_come_before_the_first_worker(
    dsn: str, conn: psycopg.Connection
) -> None:
    app = App(dsn)

    @app.task(queue="letters")
    def post(number: int) -> None: ...

    with pytest.raises(UnknownQueue, match="letters"):
        app.enqueue(post.job(number=1))
    app.migrate()
    app.migrate()
    app.enqueue(post.job(number=2))
    assert conn.execute("SELECT count(*) FROM samecommit.jobs WHERE queue = 'letters'").fetchone() == (1,)
