"""A database that was restored or cloned waits: nothing of its original is run, cleared away or relayed in it until it is adopted."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.outbox.support import Scripted, emit
from tests.support.database import ROLE, Database
from tests.support.jobs import Jobs
from tests.support.recorder import Recorder
from tests.support.waiting import until
from tests.support.workers import fast, running_worker

from samecommit import App, AsyncContext
from samecommit.cli import run as run_command
from samecommit.outbox.sinks.file import File
from samecommit.outbox.told import RelayStarted
from samecommit.signals import CopyFound
from samecommit.storage.migrate import migrate
from samecommit.storage.operate import Operator

SCHEMA = "samecommit"


@pytest.fixture
def original(empty_dsn: str) -> str:
    """A database that knows that it is at home."""
    migrate(empty_dsn, SCHEMA)
    return empty_dsn


@pytest.fixture
def copy_of(server: Database) -> Iterator[Callable[[str, str], str]]:
    """Makes a copy: a clone by the server, or a dump that is restored."""
    made: list[str] = []

    def copy(dsn: str, how: str) -> str:
        name = str(conninfo_to_dict(dsn)["dbname"])
        made.append(f"copy_of_{name}")
        if how == "clone":
            server.execute(f"CREATE DATABASE {made[-1]} TEMPLATE {name} OWNER {ROLE}")
            return server.dsn_of(made[-1])
        server.execute(f"CREATE DATABASE {made[-1]} OWNER {ROLE}")
        restore(server.server.bin_dir, dsn, server.dsn_of(made[-1]))
        return server.dsn_of(made[-1])

    yield copy
    for name in made:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def restore(programs: Path, source: str, target: str) -> None:
    """Copy a database as administrators do."""
    dump = subprocess.run([str(programs / "pg_dump"), source], check=True, capture_output=True).stdout
    load = [str(programs / "psql"), "-qX", "-v", "ON_ERROR_STOP=1", target]
    subprocess.run(load, input=dump, check=True, capture_output=True)


def make_app(dsn: str, ran: list[Any]) -> App:
    app = App(dsn)

    @app.task()
    async def work(ctx: AsyncContext) -> None:
        ran.append(ctx.effect_key)

    return app


def enqueue(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        return int(Jobs(conn).value("SELECT id FROM $.enqueue('work')"))


@pytest.mark.pg15
@pytest.mark.parametrize("how", ["clone", "restore"])
async def test_a_copy_waits_and_works_once_it_is_adopted(
    how: str, original: str, copy_of: Callable[[str, str], str]
) -> None:
    job = enqueue(original)
    dsn = copy_of(original, how)
    ran: list[Any] = []
    app = make_app(dsn, ran)
    recorder = Recorder(app)
    worker = app.worker(fast())
    running = asyncio.create_task(worker.run())
    told = await recorder.one(CopyFound)
    assert "is a copy" in told.reason and "samecommit adopt" in told.reason
    with Operator.connect(dsn, SCHEMA) as asked:
        assert asked.why(job)[0]["code"] == "away"
        assert asked.why_queue("default")[0]["code"] == "away"
        assert asked.queues()[0]["away"] == told.reason
        assert asked.workers() == []
        assert ran == []
        assert asked.adopt()
        await until(lambda: ran, what="the job to run without a restart of the worker")
        assert asked.why(job)[0]["state"] in ("running", "done")
        assert asked.queues()[0]["away"] is None
        assert not asked.adopt(), "it is at home already"
    worker.stop()
    await running
    assert len(recorder.all(CopyFound)) == 1


async def test_a_copy_beside_its_original_has_effect_keys_of_its_own(
    original: str, copy_of: Callable[[str, str], str]
) -> None:
    enqueue(original)
    dsn = copy_of(original, "clone")
    keys: dict[str, list[Any]] = {original: [], dsn: []}
    app = make_app(dsn, keys[dsn])
    worker = app.worker(fast())
    recorder, running = Recorder(app), asyncio.create_task(worker.run())
    await recorder.one(CopyFound)
    assert run_command(["adopt", "--copy", "--dsn", dsn]) == 0
    await until(lambda: keys[dsn], what="the copy's job")
    worker.stop()
    await running
    async with running_worker(make_app(original, keys[original])):
        await until(lambda: keys[original], what="the original's job")
    assert keys[original] != keys[dsn]


def test_adopting_at_home_changes_nothing(original: str, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(original, autocommit=True) as conn:
        before = conn.execute("SELECT name, value FROM samecommit.setting").fetchall()
        assert run_command(["adopt", "--copy", "--dsn", original]) == 0
        assert "already" in capsys.readouterr().out
        assert conn.execute("SELECT name, value FROM samecommit.setting").fetchall() == before


def test_the_list_of_queues_says_that_they_wait(
    original: str, copy_of: Callable[[str, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = copy_of(original, "clone")
    assert run_command(["queues", "--dsn", dsn]) == 0
    assert "this database is a copy: samecommit adopt" in capsys.readouterr().out


async def test_a_relay_sends_nothing_from_a_copy_until_it_is_adopted(
    original: str, copy_of: Callable[[str, str], str]
) -> None:
    sent: dict[str, Scripted] = {}

    def relaying(dsn: str) -> App:
        app = App(dsn)
        app.stream("there", sent.setdefault(dsn, Scripted()))
        return app

    first = relaying(original).relay()
    running = asyncio.create_task(first.run())
    with psycopg.connect(original, autocommit=True) as conn:
        await until(lambda: conn.execute("SELECT FROM samecommit.position WHERE holder IS NOT NULL").fetchall())
        first.stop()
        await running
        (number,) = emit(conn, "a")
    dsn = copy_of(original, "clone")
    app = relaying(dsn)
    recorder, outbox = Recorder(app), app.relay()
    running = asyncio.create_task(outbox.run())
    await recorder.one(CopyFound)
    assert not recorder.all(RelayStarted)
    with Operator.connect(dsn, SCHEMA) as asked:
        asked.adopt()
    await until(lambda: sent[dsn].numbers == [number], what="the event")
    outbox.stop()
    await running


@pytest.mark.parametrize("how", ["clone", "restore"])
async def test_what_a_restored_database_emits_arrives_where_later_events_have_been(
    how: str, original: str, copy_of: Callable[[str, str], str], tmp_path: Path
) -> None:
    """The destination keeps the position, and is further than the backup: what is new must not look old to it."""
    before, after = [await relayed_to_a_file(original, tmp_path) for _ in range(2)]
    dsn = copy_of(original, how)  # as it was before the next two
    lost = [await relayed_to_a_file(original, tmp_path) for _ in range(2)]
    with Operator.connect(dsn, SCHEMA) as asked:
        asked.adopt()
    new = [await relayed_to_a_file(dsn, tmp_path) for _ in range(2)]
    assert ids_in(tmp_path) == [before, after, *lost, *new]


@pytest.mark.parametrize("how", ["clone", "restore"])
async def test_what_is_emitted_in_a_copy_that_waits_arrives_too_once_it_is_adopted(
    how: str, original: str, copy_of: Callable[[str, str], str], tmp_path: Path
) -> None:
    """Nobody makes windows before the adoption: they would be counted on from where the destination has been already."""
    before = await relayed_to_a_file(original, tmp_path)
    dsn = copy_of(original, how)
    lost = [await relayed_to_a_file(original, tmp_path) for _ in range(2)]
    with psycopg.connect(dsn, autocommit=True) as conn:
        (number,) = emit(conn, "a")
        (new,) = conn.execute("SELECT id FROM samecommit.event WHERE number = %s", [number]).fetchone() or ("",)
    app = filing_app(dsn, tmp_path)
    recorder, outbox = Recorder(app), app.relay()
    running = asyncio.create_task(outbox.run())
    await recorder.one(CopyFound)
    with Operator.connect(dsn, SCHEMA) as asked:
        asked.adopt()
    await until(lambda: len(ids_in(tmp_path)) == 4, what="the event that was emitted before the adoption")
    outbox.stop()
    await running
    assert ids_in(tmp_path) == [before, *lost, new]


async def test_what_a_new_database_emits_arrives_where_an_old_one_s_events_are(
    server: Database, tmp_path: Path
) -> None:
    sent = []
    for _ in range(2):
        with server.fresh(migrated=False) as dsn:
            migrate(dsn, SCHEMA)
            sent += [await relayed_to_a_file(dsn, tmp_path), await relayed_to_a_file(dsn, tmp_path)]
    assert ids_in(tmp_path) == sent


async def relayed_to_a_file(dsn: str, directory: Path) -> str:
    """Emit an event, relay until a file has got what there is, and return the event's id."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        (number,) = emit(conn, "a")
        (sent,) = conn.execute("SELECT id FROM samecommit.event WHERE number = %s", [number]).fetchone() or ("",)
        outbox = filing_app(dsn, directory).relay()
        running = asyncio.create_task(outbox.run())
        done = "SELECT FROM samecommit.why_event('file', %s) WHERE code = 'delivered'"
        await until(lambda: conn.execute(done, [number]).fetchall(), what="the event behind the position")
        outbox.stop()
        await running
    return str(sent)


def filing_app(dsn: str, directory: Path) -> App:
    """Return an application whose events go to a file."""
    app = App(dsn)
    app.stream("file", File(directory / "events.jsonl"), start="start")
    return app


def ids_in(directory: Path) -> list[str]:
    """Return the ids of the events in the file."""
    lines = (directory / "events.jsonl").read_bytes().splitlines()
    return [json.loads(line)["id"] for line in lines]


async def test_a_relay_can_be_stopped_while_it_waits(original: str, copy_of: Callable[[str, str], str]) -> None:
    app = App(copy_of(original, "clone"))
    app.stream("there", Scripted())
    recorder, outbox = Recorder(app), app.relay()
    running = asyncio.create_task(outbox.run())
    await recorder.one(CopyFound)
    outbox.stop()
    async with asyncio.timeout(5):
        await running


def test_a_database_that_is_renamed_stays_at_home(original: str, server: Database) -> None:
    name = str(conninfo_to_dict(original)["dbname"])
    server.execute(f"ALTER DATABASE {name} RENAME TO {name}_renamed")
    try:
        with Operator.connect(server.dsn_of(f"{name}_renamed"), SCHEMA) as asked:
            assert asked.queues()[0]["away"] is None
    finally:
        server.execute(f"ALTER DATABASE {name}_renamed RENAME TO {name}")
