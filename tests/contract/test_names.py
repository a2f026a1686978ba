"""B03: each name of a queue or a task works everywhere, or is refused with the same words at enqueue and at a worker's start."""

import re
from typing import Any

import psycopg
import pytest
from tests.support.jobs import Jobs
from tests.support.waiting import until
from tests.support.workers import fast, running_worker

from samecommit import App, WorkerConfig
from samecommit.errors import ConfigError, TaskDefinitionError

pytestmark = pytest.mark.pg15

GOOD = [
    *("n" * length for length in (1, 43, 44, 57, 63, 64, 200)),
    "\N{ROCKET}" * 30,
    "Mail",
    "mail",
    "MAIL",
    "a-b",
    "a.b",
    "a b",
    "a/b",
    "*",
    "a'b",
    'a"b',
    "a;drop table x--",
    "$$",
    "%s",
    "{0}",
    "\N{RIGHT-TO-LEFT MARK}abc",
    "\N{NO-BREAK SPACE}a",
    "a\\b",
    ":schema",
]
BAD = ["", " ", " a", "a ", "a\tb", "a\nb", "a\0b", "a\x7fb", "a\x85b", "n" * 201, "\ud800"]


def with_tasks(dsn: str, names: list[str]) -> App:
    app = App(dsn)
    for name in names:

        @app.task(name=name, queue=name)
        async def work() -> None: ...

    return app


@pytest.mark.session("the doorbell")
async def test_b03_a_good_name_is_woken_paused_and_counted_like_any_other(dsn: str, jobs: Jobs) -> None:
    app = with_tasks(dsn, GOOD)
    async with running_worker(app, fast(poll_seconds=60.0)) as worker:
        for name in GOOD:
            await until(lambda: worker._bell.is_held, what="the worker sleeps and hears")
            job = app.enqueue(app._tasks[name].job())
            row = await jobs.ended(job.id, timeout_seconds=10.0)
            assert (row["queue"], row["kind"], row["claims"]) == (name, name, 1)
        for name in GOOD:
            jobs.all("SELECT $.pause(%s, 'why')", name)
        assert jobs.value("SELECT array_agg(name) FROM $.queues WHERE NOT is_paused") == ["default"]
        for name in GOOD:
            jobs.all("SELECT $.resume(%s)", name)
            assert jobs.value("SELECT count(*) FROM $.jobs WHERE queue = %s AND kind = %s", name, name) == 1
        assert jobs.value("SELECT count(*) FROM $.queues WHERE is_paused") == 0


async def test_b03_pausing_one_name_leaves_its_neighbours_running(dsn: str, jobs: Jobs) -> None:
    names = ["Mail", "mail", "MAIL", "mail'"]
    app = with_tasks(dsn, names)
    async with running_worker(app):
        jobs.all("SELECT $.pause('mail')")
        held_back = app.enqueue(app._tasks["mail"].job())
        for name in names:
            if name != "mail":
                await jobs.ended(app.enqueue(app._tasks[name].job()).id)
        assert jobs.state(held_back.id) == "ready"
        jobs.all("SELECT $.resume('mail')")
        await jobs.ended(held_back.id)


@pytest.mark.parametrize("name", BAD)
def test_b03_a_bad_name_is_refused_with_the_same_words_everywhere(dsn: str, jobs: Jobs, name: str) -> None:
    app = with_tasks(dsn, ["work"])
    rule = re.escape(f"queue name {name!r}: give 1 to 200 characters, no control characters, no spaces at the ends")
    with pytest.raises(ConfigError, match=rule):
        app._tasks["work"].using(queue=name).job()
    with pytest.raises(ConfigError, match=rule):
        WorkerConfig(queues=(name,))
    with pytest.raises(TaskDefinitionError, match=rule):
        App(dsn).task(queue=name)(idle)
    if name:
        with pytest.raises(TaskDefinitionError, match=re.escape(f"task name {name!r}")):
            App(dsn).task(name=name)(idle)


def idle() -> None: ...


@pytest.mark.parametrize("name", [name for name in BAD if "\0" not in name and name != "\ud800"])
def test_b03_the_database_refuses_it_as_well(conn: psycopg.Connection[Any], name: str) -> None:
    with pytest.raises(
        psycopg.Error, match="give 1 to 200 characters, no control characters, no spaces at the ends"
    ) as caught:
        conn.execute("SELECT samecommit.create_queue(%s)", [name])
    assert caught.value.sqlstate == "SC004"
    with pytest.raises(psycopg.Error, match="give 1 to 200 characters, no control characters") as caught:
        conn.execute("SELECT samecommit.enqueue(%s)", [name])
    assert caught.value.sqlstate == "SC004"


def test_b03_the_database_takes_every_good_name(conn: psycopg.Connection[Any]) -> None:
    for name in GOOD:
        conn.execute("SELECT samecommit.create_queue(%s)", [name])
        conn.execute("SELECT samecommit.enqueue(%s, queue => %s)", [name, name])
