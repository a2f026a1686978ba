"""Code and schema of different versions, and migrations under a load: claims go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from tests.faults.arena import ROLE, SCHEMA, Arena
from tests.faults.broken import code_of_0003
from tests.faults.crew import Crew, crew, wait_for
from tests.faults.judging import conclude
from tests.faults.producer import Producer
from tests.support import history_audit
from tests.support.history import Run
from tests.support.history_health import quartiles

from samecommit import App
from samecommit.errors import SchemaTooNew, SchemaTooOld
from samecommit.storage import migrate as module
from samecommit.storage.migrate import Migration, migrate, migrations, newest_version
from samecommit.testing.plugin import forget_home

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.fixture
def old_dsn(ground: Arena, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with the schema as it was after the third migration."""
    ground.admin(f"CREATE DATABASE old_schema OWNER {ROLE}")
    dsn = ground.dsn_of("old_schema")
    with monkeypatch.context() as patched:
        patched.setattr(module, "migrations", lambda schema: migrations(schema)[: code_of_0003.VERSION])
        migrate(dsn, SCHEMA)
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE effect (key text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())")
    history_audit.install(dsn, SCHEMA)
    forget_home(dsn, SCHEMA)
    yield dsn
    ground.admin("DROP DATABASE old_schema WITH (FORCE)")


def busy(dsn: str, folder: Path, workers: Crew, seed: int) -> Producer:
    """Have two workers at work, with a job due at any moment."""
    for _ in range(2):
        workers.start(concurrency=10).wait_until("lease")
    load = Producer(dsn, folder, "p", count=600, seconds=6, longest=0.1, seed=seed, groups=(1, 3, 5))
    load.start()
    wait_for(lambda: load.made > 50, 20)
    return load


def gaps(run: Run, since: float, until: float) -> list[float]:
    """The times in which nothing was claimed, s."""
    moments = [since, *(line["at"] for line in run.claims if since < line["at"] < until), until]
    return [later - sooner for sooner, later in pairwise(moments)]


def test_a_worker_goes_on_while_its_schema_becomes_newer_than_it(old_dsn: str, folder: Path, seed: int) -> None:
    with crew(old_dsn, folder, broken="code_of_0003") as workers:
        load = busy(old_dsn, folder, workers, seed)
        began = time.time()
        applied = migrate(old_dsn, SCHEMA)
        ended = time.time()
        load.join(60)
        run = conclude(old_dsn, folder, workers)
        assert [step.version for step in applied][:1] > [code_of_0003.VERSION]
        worst = max(gaps(run, began - 0.5, ended + 0.5))
        print(f"{len(applied)} migrations in {ended - began:.2f} s; longest time without a claim {worst:.2f} s")
        assert worst <= 1.0
        services = {line["service"] for line in run.handlers if line["op"] == "trouble"}
        assert services <= {"chore inbox"}, "only what the schema did not have yet"
        late = workers.start()
        assert late.process.wait(30) == 1
        assert "SchemaTooNew" in workers.errors() and "upgrade the samecommit package" in workers.errors()


def test_newer_code_on_an_older_schema_refuses_and_says_what_to_run(old_dsn: str) -> None:
    app = App(old_dsn)

    @app.task()
    def work() -> None: ...

    async def run() -> None:
        async with asyncio.timeout(20):
            await app.worker().run()

    with pytest.raises(
        SchemaTooOld, match=f"has version 3 and this code needs {newest_version()}: run samecommit migrate"
    ):
        asyncio.run(run())


def test_a_worker_on_a_newer_schema_refuses_and_says_what_to_do(dsn: str) -> None:
    app = App(dsn)
    app.stream("there", None)  # type: ignore[arg-type]
    with psycopg.connect(dsn) as conn:
        conn.execute("INSERT INTO samecommit.migration (version, name) VALUES (9999, 'later')")
    with pytest.raises(SchemaTooNew, match="upgrade the samecommit package"):
        asyncio.run(app.relay().run())


def test_a_migration_that_has_to_wait_for_a_lock_lets_claims_go_on(
    dsn: str, folder: Path, workers: Crew, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Migration(version=9998, name="wider", text="ALTER TABLE samecommit.job ADD COLUMN wider int")
    load = busy(dsn, folder, workers, seed)
    began = time.time()
    with monkeypatch.context() as patched, psycopg.connect(dsn) as reader:
        reader.execute("SELECT FROM samecommit.job LIMIT 1")  # a report that takes its time
        patched.setattr(module, "migrations", lambda schema: [*migrations(schema), later])
        patched.setattr(module, "newest_version", lambda: later.version)
        migrator = threading.Thread(target=migrate, args=(dsn, SCHEMA))
        migrator.start()
        time.sleep(3)
        assert migrator.is_alive()
        reader.commit()
        migrator.join(30)
    ended = time.time()
    load.join(60)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT max(version) FROM samecommit.migration").fetchone() == (later.version,)
    run = conclude(dsn, folder, workers)
    found = gaps(run, began, ended)
    print("times without a claim, s:", quartiles(found))
    assert max(found) <= 1.0
