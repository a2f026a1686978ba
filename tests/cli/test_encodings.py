"""Databases that are not in UTF-8: commands and scripts read and write text there as anywhere."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Samecommit
from tests.support.database import ROLE, SCHEMA, Database
from tests.support.workers import running_worker

from samecommit import App
from samecommit.errors import JobError
from samecommit.storage.migrate import migrate


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def encoded(request: pytest.FixtureRequest, server: Database) -> Iterator[str]:
    """A migrated database in that encoding."""
    name = f"in_{request.param.lower()}"
    server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LOCALE 'C' OWNER {ROLE}")
    migrate(server.dsn_of(name), SCHEMA)
    yield server.dsn_of(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_scripts_and_commands_speak_in_texts_whatever_the_database_s_encoding(
    encoded: str, samecommit: Samecommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(encoded)

    @app.task(max_attempts=1)
    async def greet(name: str) -> str:
        if not name:
            raise ValueError("nobody to greet: é")
        return f"hallo {name}"

    done, failed = app.enqueue(greet.job("Käthe")), app.enqueue(greet.job(""))
    async with running_worker(app):
        assert await app.result_async(done, timeout=30) == "hallo Käthe"
        assert app.result(done, timeout=30) == "hallo Käthe"
        with pytest.raises(JobError, match="nobody to greet: é"):
            await app.result_async(failed, timeout=30)
    monkeypatch.setenv("SAMECOMMIT_DSN", encoded)
    for command in (["jobs"], ["queues"], ["failures"], ["workers"], ["jobs", "show", failed.id]):
        assert samecommit(*command).status == 0, command
    states = {row["id"]: row["state"] for row in samecommit("jobs", "--json").data}
    assert states == {done.id: "done", failed.id: "failed"}
    assert "nobody to greet: é" in samecommit("jobs", "why", failed.id).out
    assert "retried" in samecommit("jobs", "retry", failed.id).out
