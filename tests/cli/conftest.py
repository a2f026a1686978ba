"""Runs commands in the test's own process, and applications that they load."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from samecommit.cli import run

SHOP = """
from samecommit import App, Context, Fail, Hold, Tasks

app = App()
extra = Tasks()

@app.task()
def greet(name: str, times: int = 1) -> str:
    return f"hello {name}" * times

@app.task(queue="slow", max_attempts=1)
def boom(n: int) -> None:
    raise ValueError(f"cannot do {n}")

@extra.task()
def lonely() -> None: ...

def make_app() -> App:
    return app

def make_nothing() -> None: ...
"""


@dataclass(frozen=True)
class Told:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """The machine's form: one object in one line."""
        assert self.out.count("\n") == 1, self.out
        answer: dict[str, Any] = json.loads(self.out)
        return answer

    @property
    def data(self) -> Any:
        assert self.status == 0, self
        return self.answer["data"]


Samecommit = Callable[..., Told]


@pytest.fixture
def samecommit(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Samecommit:
    """``samecommit("jobs", "--limit", 3)`` runs that command."""
    for name in ("SAMECOMMIT_DSN", "SAMECOMMIT_SCHEMA", "SAMECOMMIT_APP", "SAMECOMMIT_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: object) -> Told:
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        return Told(status, *capfd.readouterr())

    return command


@pytest.fixture
def on_database(samecommit: Samecommit, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Samecommit:
    """The same, on a migrated database of the test's own."""
    monkeypatch.setenv("SAMECOMMIT_DSN", dsn)
    return samecommit


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module with an application, in the current directory; its name is new for each test, since modules stay loaded."""
    name = f"shop_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name
